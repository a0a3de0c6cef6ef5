//! The harness of the end-to-end tests: fixture programs with known truth, heaptrace itself, and the
//! comparison of both.
//!
//! No stage of the flow: it runs the built binary as a user would and reads what it writes, and knows
//! nothing of heaptrace's insides. Every child it starts has a time limit and dies with its handle,
//! so that no test can hang and none leaves a process behind.

mod attach;
mod cgroup;
mod child;
mod fixture;
mod gdb;
mod kernel;
mod maps;
mod paths;
mod record;
mod report;
mod rights;
mod sources;
mod tracefs;
mod truth;
mod valgrind;

pub use cgroup::Group;
pub use child::{Child, Ended, run, send};
pub use fixture::{
    Compiler, Fixture, bench_program, c, c_hostile, c_library, c_linked, c_optimized, c_plugin,
    cpp, cpp_linked, cpp_optimized, go, rust, rust_crate, rust_optimized, stripped,
};
pub use gdb::{Backtrace, GdbFrame, backtraces};
pub use kernel::{Holdings, definitions};
pub use maps::map_entries;
pub use paths::{heaptrace, target, workspace};
pub use record::{Heaptrace, Recording};
pub use report::{Allocator, Frame, Mode, Process, Quality, Report, Site, Totals, Turns};
pub use rights::{NOBODY, open_to_nobody, require_root, require_tool};
pub use sources::{Source, rust_sources};
pub use tracefs::uprobe_events;
pub use truth::{Bounds, Truth, all_match, bounds, lap, ready_pid, truths};
pub use valgrind::HeapUsage;
