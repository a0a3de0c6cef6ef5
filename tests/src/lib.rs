//! The harness of the end-to-end tests: it runs fixtures that count their own calls, runs heaptrace on them, and
//! compares the counts.
//!
//! It is no stage. It runs the built binary as a user would, reads its output, and knows nothing of its inside. Every
//! child that it starts has a time limit and is killed when its handle is dropped: no test hangs or leaves a process.

mod agreement;
mod archive;
mod attach;
mod cgroup;
mod child;
mod estimates;
mod fixture;
mod gdb;
mod glibc;
mod imports;
mod items;
mod java;
mod kernel;
mod maps;
mod node;
mod paths;
mod preloaded;
mod pty;
mod python;
mod random;
mod record;
mod report;
mod rights;
mod sources;
mod stacks;
mod tokens;
mod tracefs;
mod truth;
pub mod types;
mod until;
mod uprobe;
mod valgrind;

pub use agreement::{Agreement, LanguageStack};
pub use archive::{Archive, unpack};
pub use cgroup::Group;
pub use child::{Child, Ended, has_ended, run, send};
pub use estimates::{agree, agrees, code_mappings};
pub use fixture::{
    Compiler, Fixture, STATIC_JEMALLOC, WAIT_UNTIL_MOVED, bench_program, c, c_hostile, c_library,
    c_linked, c_moved, c_optimized, c_plugin, c_preload, cpp, cpp_linked, cpp_moved, cpp_optimized,
    go, rust, rust_crate, rust_optimized, stripped,
};
pub use gdb::{Backtrace, GdbFrame, backtraces};
pub use glibc::{GLIBCS, c_on_glibc, glibc_files};
pub use imports::circles;
pub use java::{java_agreement, java_classes, java_machines, java_stack};
pub use kernel::{Holdings, definitions};
pub use maps::map_entries;
pub use node::{javascript_stack, node_agreement, node_programs};
pub use paths::{heaptrace, target, workspace};
pub use preloaded::{ALLOCATORS, record_moved};
pub use pty::{Modes, Pty};
pub use python::{python_agreement, python_interpreters, python_stack};
pub use random::Random;
pub use record::{Heaptrace, Recording};
pub use report::{
    Allocator, DutyCycle, Frame, KilledAt, Mode, Process, ProcessEnd, Quality, Report, Site, Totals,
};
pub use rights::{NOBODY, open_to_nobody, require_root, require_tool};
pub use sources::{Source, project_texts, rust_sources};
pub use tracefs::uprobe_events;
pub use truth::{Bounds, Truth, all_match, bounds, lap, ready_pid, truths};
pub use until::{MINUTE, until};
pub use uprobe::{ForeignProbe, c_library_of_machine, function_offset};
pub use valgrind::HeapUsage;
