//! What the join stage hands on: tables that only grow, and records that changed.
//!
//! Stage: join. An [`Update`] is the one thing that leaves this stage: the live view folds it into a
//! profile in memory, the recorder writes it to the data file, and a reader of that file folds it
//! again. This file knows nothing of how addresses get names, nor of any file format.
//!
//! Tables (modules, locations, stacks) are append-only: an id is an index and never changes its
//! meaning. Processes and sites are written whole whenever they changed, last one wins (also where
//! another one has taken the place of one that was merged with others), so that a
//! stream of updates cut off anywhere is still a true picture of an earlier moment.

use std::collections::{BTreeMap, BTreeSet};

/// Index of a [`Module`] in the run's module table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// Index of a [`Location`] in the run's location table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationId(pub u32);

/// Index of a [`Stack`] in the run's stack table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Index of a [`Process`] in the run's process table.
///
/// A process here is one program image: a pid that calls `exec` begins a new record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// Index of a [`Site`] in the run's site table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u32);

/// Index of a thread's name in the run's table of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadNameId(pub u32);

/// A file (or the kernel's own vDSO) that was mapped executable into a traced process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Module {
    /// Path as the process saw it, `[vdso]` for the kernel's page.
    pub path: String,
    /// GNU build id; empty where the file has none.
    pub build_id: Vec<u8>,
    /// Address of the executable mapping in the first process that was seen with it.
    pub text_start: u64,
    /// First address behind that mapping.
    pub text_end: u64,
    /// Offset in the file at which that mapping begins.
    pub text_offset: u64,
    /// Root folder, in the agent's view, of the first process seen with it (empty: the agent's own).
    pub root: String,
}

/// One code address, to be symbolized once however many stacks go through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The module that holds it; `None` for JIT code and for what no mapping was known.
    pub module: Option<ModuleId>,
    /// Offset in the module's file, or the bare address where there is no module. Points into the
    /// calling instruction (return address minus one), so it can be looked up as it is.
    pub address: u64,
}

/// How far a stack goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completeness {
    /// Ends at a recognised outermost frame.
    Complete,
    /// Deeper than the frame limit.
    Truncated,
    /// The walk ended where no outermost frame was recognised.
    Broken,
}

/// A call stack, innermost frame (the caller of the allocator function) first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// The frames.
    pub locations: Vec<LocationId>,
    /// Whether the walk reached the outermost frame.
    pub completeness: Completeness,
}

/// Counters of requested bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Successful allocations, reallocations included.
    pub allocations: u64,
    /// Bytes they asked for.
    pub allocated_bytes: u64,
    /// Frees of recorded blocks.
    pub frees: u64,
    /// Bytes those blocks had asked for.
    pub freed_bytes: u64,
    /// Blocks not freed (for an ended process: when it ended).
    pub live_allocations: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Blocks that were not seen freed, but may have been while their process was not probed.
    pub uncertain_allocations: u64,
    /// Their bytes.
    pub uncertain_bytes: u64,
    /// For the run: the highest sum of live bytes. For a process: its own highest. For a site: its
    /// live bytes at the moment of the run's peak, so that sites add up to the run's figure.
    pub peak_live_bytes: u64,
    /// Blocks freed by the thread that allocated them with no allocation of that thread in between.
    pub temporary_allocations: u64,
    /// How uncertain these are.
    pub errors: Errors,
}

/// Standard errors of [`Totals`], each of the counter of its name; all zero where every allocation was
/// recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the counters")]
pub struct Errors {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub freed_bytes: u64,
    pub live_allocations: u64,
    pub live_bytes: u64,
    pub peak_live_bytes: u64,
    pub temporary_allocations: u64,
}

/// From when on samples were taken at another rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateChange {
    /// Nanoseconds since the run began.
    pub at_ns: u64,
    /// The process that it is about; `None` for all that have no rate of their own.
    pub process: Option<ProcessId>,
    /// Mean bytes between samples.
    pub mean_bytes: u64,
}

/// An allocator that was hooked in a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Allocator {
    /// The file that holds it.
    pub path: String,
    /// What it is, e.g. `glibc`.
    pub kind: String,
    /// Names of the functions that are probed.
    pub hooks: Vec<String>,
}

/// One program image of one process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Process {
    /// Process id (thread group id) in the agent's pid namespace.
    pub pid: u32,
    /// When the process started, nanoseconds on the boot clock; with the pid its identity.
    pub start_time_ns: u64,
    /// Name (`comm`); raw, to be escaped by every output.
    pub command: String,
    /// Its words, as they were at its first allocation, cut to a size; empty if it ended before they
    /// could be read. Raw, too.
    pub command_line: String,
    /// Control group path, empty if unknown.
    pub cgroup: String,
    /// Whether it has ended, or called `exec`, before the run did.
    pub ended: bool,
    /// Its counters.
    pub totals: Totals,
    /// Frees of blocks that were not recorded, mostly allocated before tracing began.
    pub untracked_frees: u64,
    /// Calls of allocator functions that failed.
    pub failed_allocations: u64,
    /// Allocations of its that found no place in the kernel's maps or the ring.
    pub lost: u64,
    /// How many ended processes of its name the record stands for; 0 where it is one process's.
    pub merged: u64,
    /// What was hooked in it.
    pub allocators: Vec<Allocator>,
    /// That it was not probed all the time, if so.
    pub duty_cycle: Option<DutyCycle>,
}

/// A process that is probed in turns, since probing it all the time would slow it down too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DutyCycle {
    /// When it was first left alone, nanoseconds since the run began.
    pub from_ns: u64,
    /// How long it has not been probed since, all in all.
    pub unprobed_ns: u64,
    /// What share of its processor time went into probes before, in ten-thousandths.
    pub overhead: u32,
}

impl Process {
    /// A place in the table that no process has.
    pub(super) fn vacant() -> Self {
        Self {
            ended: true,
            ..Self::default()
        }
    }

    /// Whether it is such a place.
    pub fn is_vacant(&self) -> bool {
        self.ended && self.pid == 0 && self.merged == 0
    }
}

/// What kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Blocks of an allocator.
    #[default]
    Heap,
    /// Pages that were mapped by the program itself, whole ones.
    Mapped,
}

/// Everything that one stack in one process allocated; in the threads of one name, where these are
/// kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The process.
    pub process: ProcessId,
    /// The stack.
    pub stack: StackId,
    /// Name of the thread, where it is asked for and known.
    pub thread: Option<ThreadNameId>,
    /// What kind of memory it is.
    pub kind: Kind,
    /// Its counters.
    pub totals: Totals,
}

/// How far the numbers can be believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Allocations that reached the agent.
    pub samples: u64,
    /// What was dropped, per reason; every reason there is, also where its count is zero.
    pub lost: BTreeMap<String, u64>,
    /// What happened and cost nothing, per kind; every kind there is.
    pub noted: BTreeMap<String, u64>,
    /// Allocators that a traced process mapped and that are not probed: what it allocates by them
    /// is not in the numbers.
    pub unprobed: BTreeSet<String>,
    /// Files for whose unwind tables there was no room, each with who runs it and why: their frames
    /// are left by frame pointers, if they have any.
    pub without_tables: BTreeSet<String>,
    /// Files that no reader could read, each with the reason: their names, tables or allocators are missing.
    pub unreadable: BTreeSet<String>,
    /// Frees of blocks that were not recorded.
    pub untracked_frees: u64,
    /// Allocator calls that failed.
    pub failed_allocations: u64,
    /// Samples whose stack is complete.
    pub stacks_complete: u64,
    /// Samples whose stack is deeper than the limit.
    pub stacks_truncated: u64,
    /// Samples whose stack ended early.
    pub stacks_broken: u64,
    /// Bytes of kernel memory that the maps of the kernel program take.
    pub kernel_map_bytes: u64,
    /// Processor time that the agent has taken, nanoseconds.
    pub agent_cpu_ns: u64,
    /// Most memory that the agent had, bytes.
    pub agent_peak_bytes: u64,
    /// Nanoseconds that a hit of a probe takes on this machine; 0 where that was not asked.
    pub hit_ns: u64,
    /// What share of a process's processor time may go into probes, in ten-thousandths; 0 for any.
    pub max_overhead: u32,
}

/// What changed since the last update. See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Nanoseconds since the run began.
    pub elapsed_ns: u64,
    /// New modules; the first has the id that follows the last one of the update before.
    pub modules: Vec<Module>,
    /// New locations.
    pub locations: Vec<Location>,
    /// New stacks.
    pub stacks: Vec<Stack>,
    /// New names of threads; raw, to be escaped by every output.
    pub threads: Vec<String>,
    /// Changed processes, whole.
    pub processes: Vec<(ProcessId, Process)>,
    /// Changed sites, whole.
    pub sites: Vec<(SiteId, Site)>,
    /// How often sizes of each class were asked for, since the run began: of no bytes, and of each
    /// power of two up to the next; empty where nothing is known.
    pub sizes: Vec<u64>,
    /// New changes of the sampling rate.
    pub rates: Vec<RateChange>,
    /// Totals of the run.
    pub totals: Totals,
    /// Quality of the run.
    pub quality: Quality,
}
