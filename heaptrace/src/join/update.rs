//! The results of the join: tables that only grow, and records that changed.
//!
//! Stage: join. An [`Update`] is the only data that leaves this stage. The live view folds it into a profile
//! in memory, the recorder writes it to the data file, and a reader of that file folds it again. Knows
//! nothing of names of addresses and of file formats.
//!
//! Tables (modules, locations, stacks) are append-only: an id is an index, and never changes its meaning. A
//! changed process or site is sent as a whole, and replaces the record before; this includes a record that
//! uses the slot of a merged one. So a stream of updates that is cut off anywhere is a true picture of an
//! earlier moment.

use std::collections::{BTreeMap, BTreeSet};

use super::block_changes::BlockChanges;
use super::block_sizes::BlockSizes;
use super::end::{End, KilledAt};
use super::marks::{Exceeded, Mark};
use super::overhead::Overhead;
use super::reachability::Reachability;
use super::usage::Usage;
use crate::text::file_name;

pub use super::traced::{ShortLived, Traced};

pub use super::ids::{
    FunctionId, GenerationId, LocationId, ModuleId, ProcessId, SiteId, StackId, ThreadNameId,
};

/// A file (or the kernel's own vDSO) that was mapped executable into a traced process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Module {
    /// Path as the process saw it, `[vdso]` for the kernel's page.
    pub path: String,
    /// GNU build id; empty if the file has none.
    pub build_id: Vec<u8>,
    /// Address of the executable mapping in the first process that mapped it.
    pub text_start: u64,
    /// First address after that mapping.
    pub text_end: u64,
    /// Offset in the file at which that mapping begins.
    pub text_offset: u64,
    /// Link-time address of what is at that offset; `None` if it is not known.
    pub text_address: Option<u64>,
    /// Root folder, in the agent's view, of the first process that mapped it (empty: the agent's own).
    pub root: String,
    /// The name by which it was started as a program. Empty for a library, if it is the file's name, and if there
    /// were several.
    pub started_as: String,
}

impl Module {
    /// The short name: for a program the one that started it, for a library that of its file; raw.
    pub fn name(&self) -> &str {
        match self.started_as.as_str() {
            "" => file_name(&self.path),
            name => name,
        }
    }
}

/// A language whose functions are in no file with code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Python.
    Python,
    /// JavaScript.
    JavaScript,
    /// Any: machine code that a runtime has generated, of which only the name is known that the runtime wrote.
    Jit,
    /// Java, and other languages that are compiled for its virtual machine.
    Java,
}

impl Language {
    /// Whether a program runs its functions, which are no machine code.
    pub fn is_interpreted(self) -> bool {
        match self {
            Self::Python | Self::JavaScript | Self::Java => true,
            Self::Jit => false,
        }
    }
}

/// A function that an interpreter runs, or that a runtime has generated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its language.
    pub language: Language,
    /// Its name; raw, to be escaped by every output. Empty if it could not be read.
    pub name: String,
    /// Its source file, as the interpreter has it; raw. Empty if it could not be read.
    pub file: String,
}

/// One place in code: an address, which is symbolized once, however many stacks contain it, or a line of a function that an
/// interpreter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The module that holds it; `None` for JIT code, or if its mapping is unknown, or if it has a function.
    pub module: Option<ModuleId>,
    /// Offset in the module's file, or the address itself if there is no module. It points into the
    /// calling instruction (return address minus one), so it can be looked up unchanged. If it has a function, the line, 0 if
    /// that is unknown.
    pub address: u64,
    /// The function that an interpreter runs here; `None` for machine code.
    pub function: Option<FunctionId>,
}

/// How far a stack goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completeness {
    /// The walk ended at a recognised outermost frame.
    Complete,
    /// The stack is deeper than the frame limit.
    Truncated,
    /// The walk ended before an outermost frame was recognised.
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
    /// Blocks of running processes that are not freed.
    pub live_allocations: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Blocks that processes had not freed when they ended.
    pub left_allocations: u64,
    /// Their bytes.
    pub left_bytes: u64,
    /// Blocks whose free was not seen, but may have been missed while their process was paused.
    pub uncertain_allocations: u64,
    /// Their bytes.
    pub uncertain_bytes: u64,
    /// For the run: the most live bytes at a time. For a process: its own most. For a site: its live
    /// bytes at the moment of the run's peak, so that sites add up to the peak of the run.
    pub peak_live_bytes: u64,
    /// Blocks whose free directly follows the allocation of a block of the same size and stack, which in most cases is the same block, in the
    /// calls of one thread. In a run that does not record all calls: blocks freed by the thread that allocated them with no
    /// allocation of that thread in between.
    pub temporary_allocations: u64,
    /// How uncertain these counters are.
    pub errors: Errors,
}

impl Errors {
    /// The standard error of the sum, or the difference, of two independent numbers, rounded up.
    pub fn both(a: u64, b: u64) -> u64 {
        match (a, b) {
            (0, error) | (error, 0) => error,
            (a, b) => (a as f64).hypot(b as f64).ceil() as u64,
        }
    }
}

/// Standard errors of [`Totals`], each for the counter of the same name, and what intervals need besides. The
/// errors are zero if every allocation was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the counters")]
pub struct Errors {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub freed_bytes: u64,
    pub live_allocations: u64,
    pub live_bytes: u64,
    pub left_allocations: u64,
    pub left_bytes: u64,
    pub peak_live_bytes: u64,
    pub temporary_allocations: u64,
    pub unseen: Unseen,
    /// The largest mean of bytes between samples under which one of the samples was taken; 1 for memory of a kind
    /// that is recorded as a whole in every run. 0 if there was no sample, in an exact run, and in older files.
    pub mean_bytes: u64,
}

/// The parts of [`Totals`] that were not seen, each of the counter of the same name: what samples stand for
/// beyond themselves. The rest of a counter is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the counters")]
pub struct Unseen {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub freed_bytes: u64,
    pub live_allocations: u64,
    pub live_bytes: u64,
    pub left_allocations: u64,
    pub left_bytes: u64,
    pub peak_live_bytes: u64,
    pub temporary_allocations: u64,
}

/// A change of the sampling rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateChange {
    /// Nanoseconds since the run began.
    pub at_ns: u64,
    /// The process; `None` for all processes without a rate of their own.
    pub process: Option<ProcessId>,
    /// Mean bytes between samples.
    pub mean_bytes: u64,
}

/// An allocator that was probed in a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Allocator {
    /// The file that holds it.
    pub path: String,
    /// Its kind, e.g. `glibc`.
    pub kind: String,
    /// Names of the probed functions.
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
    /// Command line at its first allocation, cut to a size; empty if it ended before that could be read.
    /// Raw, too.
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
    /// Its allocations that found no room in the kernel's maps or in the ring.
    pub lost: u64,
    /// The number of ended processes that the record stands for; 0 if it is the record of one process.
    pub merged: u64,
    /// The allocators that were probed in it.
    pub allocators: Vec<Allocator>,
    /// Its memory, as the kernel counts it.
    pub memory: Memory,
    /// Its duty cycle, if it was paused at any time.
    pub duty_cycle: Option<DutyCycle>,
    /// From when to when it was traced, in a run that reaches processes one by one.
    pub traced: Option<Traced>,
    /// How it ended; `None` while it runs, if that is not known, and for a record that stands for many.
    pub end: Option<End>,
    /// The control group at whose limit it was killed, if it was and that is known.
    pub killed_at: Option<KilledAt>,
}

/// The resident memory of a process, in bytes, as the kernel counts it; 0 where it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Now; 0 if the process has ended.
    pub resident: u64,
    /// The most at a time, since before tracing began.
    pub peak_resident: u64,
    /// When tracing began; 0 if the process started later.
    pub resident_before: u64,
}

/// The duty cycle of a process: it is paused from time to time, because constant probing would slow it down
/// too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DutyCycle {
    /// When it was first paused, nanoseconds since the run began.
    pub from_ns: u64,
    /// The sum of its pauses, in nanoseconds.
    pub unprobed_ns: u64,
    /// The share of its processor time that probes took before, in ten-thousandths.
    pub overhead: u32,
    /// The share of its processor time that probes took in all, so far, in ten-thousandths.
    pub reached: u32,
}

impl Process {
    /// A slot of the table without a process.
    pub(super) fn vacant() -> Self {
        Self {
            ended: true,
            ..Self::default()
        }
    }

    /// Whether the slot has no process.
    pub fn is_vacant(&self) -> bool {
        self.ended && self.pid == 0 && self.merged == 0
    }
}

/// Kinds of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Blocks of an allocator.
    #[default]
    Heap,
    /// Whole pages that the program itself mapped.
    Mapped,
}

/// Everything that one stack in one process allocated; if threads of different names have sites of their own,
/// in the threads of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The process.
    pub process: ProcessId,
    /// The stack.
    pub stack: StackId,
    /// Name of the thread, if it was asked for and could be read.
    pub thread: Option<ThreadNameId>,
    /// Kind of memory.
    pub kind: Kind,
    /// Its counters.
    pub totals: Totals,
    /// Its live bytes at the moment of its own process's peak.
    pub own_peak: OwnPeak,
    /// The sizes of its recorded blocks since the run began, also in a part of a run. `None` for mappings, and in older files.
    pub block_sizes: Option<BlockSizes>,
    /// Its id in the run, by which [`Usage`] is found. Its place in a list of sites may be another one.
    pub slot: SiteId,
}

/// Bytes at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnPeak {
    /// The bytes.
    pub bytes: u64,
    /// Their standard error.
    pub error: u64,
    /// What samples stand for beyond themselves.
    pub unseen: u64,
}

impl Site {
    /// The counters with the bytes at the peak of the site's process, not at that of the run.
    pub fn at_own_peak(&self) -> Totals {
        let mut totals = self.totals;
        totals.peak_live_bytes = self.own_peak.bytes;
        totals.errors.peak_live_bytes = self.own_peak.error;
        totals.errors.unseen.peak_live_bytes = self.own_peak.unseen;
        totals
    }
}

/// What one site allocated between two marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The number of the mark after which it was allocated.
    pub mark: u32,
    /// The site, with the counters of these allocations alone. It has no peak.
    pub site: Site,
    /// The bytes that were not freed at later marks: each number holds for this mark and the ones before it that have none of their
    /// own. At marks after the last of them, it was what it is now.
    pub survived: Vec<(u32, u64)>,
}

impl Generation {
    /// What is not freed: live, or left by an ended process.
    pub fn held(&self) -> u64 {
        let totals = &self.site.totals;
        totals.live_bytes.saturating_add(totals.left_bytes)
    }

    /// What was not freed at a later mark.
    #[cfg(test)]
    pub fn held_at(&self, mark: u32) -> u64 {
        let known = self.survived.iter().find(|it| it.0 >= mark);
        known.map_or_else(|| self.held(), |it| it.1)
    }
}

/// How far the numbers can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Allocations that reached the agent.
    pub samples: u64,
    /// How often something was lost, by the name of the [`Loss`](super::Loss) or of the kernel program's
    /// counter.
    pub lost: BTreeMap<String, u64>,
    /// How often something happened that takes nothing out of the totals, by the name of the
    /// [`Note`](super::Note), of the kernel program's counter, or of a kind of broken stack.
    pub noted: BTreeMap<String, u64>,
    /// Allocators that a traced process mapped, but that are not probed: allocations through them
    /// are not in the numbers.
    pub unprobed: BTreeSet<String>,
    /// Files for whose unwind tables there was no room, each with a process that runs it and the reason. Their
    /// frames are walked by frame pointers, if they have any.
    pub without_tables: BTreeSet<String>,
    /// Files that no reader could read, each with the reason: their names, tables or allocators are missing.
    pub unreadable: BTreeSet<String>,
    /// The processes that ended before the probes reached them, most first; the first so many names.
    pub short_lived: Vec<ShortLived>,
    /// Frees of blocks that were not recorded.
    pub untracked_frees: u64,
    /// Allocator calls that failed.
    pub failed_allocations: u64,
    /// Samples whose stack is complete.
    pub stacks_complete: u64,
    /// Samples whose stack is deeper than the limit.
    pub stacks_truncated: u64,
    /// Samples whose stack is broken: its walk ended early.
    pub stacks_broken: u64,
    /// Kernel memory that the maps of the kernel program use, in bytes.
    pub kernel_map_bytes: u64,
    /// Processor time that the agent has used, in nanoseconds.
    pub agent_cpu_ns: u64,
    /// The most memory that the agent has used at a time, in bytes.
    pub agent_peak_bytes: u64,
    /// What the probes cost the traced processes.
    pub overhead: Overhead,
}

impl Quality {
    /// The stacks of all samples.
    pub fn stacks(&self) -> u64 {
        let sum = self.stacks_complete.saturating_add(self.stacks_truncated);
        sum.saturating_add(self.stacks_broken)
    }
}

/// The changes since the last update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Nanoseconds since the run began.
    pub elapsed_ns: u64,
    /// New modules. The first one has the id after the last one of the update before.
    pub modules: Vec<Module>,
    /// The `started_as` of earlier modules that have changed.
    pub started: Vec<(ModuleId, String)>,
    /// New functions that interpreters run.
    pub functions: Vec<Function>,
    /// New locations.
    pub locations: Vec<Location>,
    /// New stacks.
    pub stacks: Vec<Stack>,
    /// New names of threads; raw, to be escaped by every output.
    pub threads: Vec<String>,
    /// Changed processes, each as a whole.
    pub processes: Vec<(ProcessId, Process)>,
    /// Changed sites, each as a whole.
    pub sites: Vec<(SiteId, Site)>,
    /// How some sites use their blocks, each as a whole. It may have only half of the events that the site's counters have, but not
    /// at the end of the run.
    pub usages: Vec<(SiteId, Usage)>,
    /// All marks, if there are others than before.
    pub marks: Vec<Mark>,
    /// Limits of live memory that were exceeded since the last update.
    pub exceeded: Vec<Exceeded>,
    /// Changed generations of sites, each as a whole.
    pub generations: Vec<(GenerationId, Generation)>,
    /// Blocks that were allocated and freed, if the run keeps each block. They are no part of a profile.
    pub blocks: Vec<BlockChanges>,
    /// What searches for blocks that nothing points to have found, each in place of the one before of its process.
    pub reachability: Vec<Reachability>,
    /// All live blocks at this time, if a file begins with them.
    pub live_blocks: Option<Vec<BlockChanges>>,
    /// How often sizes of each class were asked for since the run began. The first class is 0 bytes, each
    /// other one goes from a power of two up to the next; empty if this was not counted.
    pub sizes: Vec<u64>,
    /// New changes of the sampling rate.
    pub rates: Vec<RateChange>,
    /// Totals of the run.
    pub totals: Totals,
    /// Quality of the run.
    pub quality: Quality,
}
