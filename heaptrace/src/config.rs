//! What a run is asked to do, as plain validated values.
//!
//! No stage of the flow: `cli/` makes these, `session.rs` reads them. Nothing here parses arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use heaptrace_common::{limits, sampling};

use crate::account::Account;

/// Whom to trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Running processes.
    Pids(Vec<u32>),
    /// Every process of the machine.
    All,
    /// A command, started by heaptrace and traced from its first allocation.
    Command(Vec<OsString>),
}

impl Target {
    /// The target as it is named in reports: `--pid 12`, `--all`, or the command line.
    pub fn describe(&self) -> String {
        match self {
            Self::Pids(pids) => pids
                .iter()
                .map(|pid| format!("--pid {pid}"))
                .collect::<Vec<_>>()
                .join(" "),
            Self::All => "--all".to_owned(),
            Self::Command(words) => words
                .iter()
                .map(|word| word.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" "),
        }
    }
}

/// Which of all processes are traced; where nothing is named, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Patterns of names, one of which must fit.
    pub names: Vec<String>,
    /// Patterns of names, none of which may fit.
    pub excluded: Vec<String>,
    /// Control groups, in or below one of which a process must be.
    pub cgroups: Vec<PathBuf>,
    /// Ids of users, one of whom must be its real one.
    pub users: Vec<u32>,
}

/// A file that the user says is an allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAllocator {
    /// The file.
    pub path: PathBuf,
    /// What the names of its functions begin with, before `malloc`, `free` and so on.
    pub prefix: String,
}

/// What a probe does when it is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probes {
    /// Record the allocation.
    Full,
    /// Nothing: what a benchmark subtracts, the price of the trap itself.
    Empty,
}

/// What unwind tables may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableConfig {
    /// Bytes of the kernel's memory for their rows.
    pub max_bytes: u64,
    /// The folder that they are kept in for the next run, if they are.
    pub cache: Option<PathBuf>,
}

impl TableConfig {
    /// Entries for 64-KiB pages of code: real code has some six kilobytes of rows for each.
    pub fn pages(&self) -> u32 {
        let pages = u32::try_from(self.max_bytes / 4096).unwrap_or(u32::MAX);
        pages.max(limits::MAX_PAGES)
    }
}

/// Which allocations are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Mean bytes between samples; 1 takes all.
    pub mean: u64,
    /// Most samples a second, over all processes; the mean is made larger for those that have more
    /// than their share.
    pub max_per_second: Option<u32>,
    /// The smallest size.
    pub min_size: u64,
    /// The largest size.
    pub max_size: u64,
}

impl Sampling {
    /// Everything.
    pub const EXACT: Self = Self {
        mean: 1,
        max_per_second: None,
        min_size: 0,
        max_size: u64::MAX,
    };

    /// Whether there are allocations that are not recorded.
    pub fn is_partial(&self) -> bool {
        self.mean > 1 || self.min_size > 0 || self.max_size < u64::MAX
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// Whom to trace.
    pub target: Target,
    /// Whom a command runs as, if not as this process.
    pub run_as: Option<Account>,
    /// Which of all processes, where all are the target.
    pub selection: Selection,
    /// Whether the children of the targets are traced, too.
    pub children: bool,
    /// Whether sites of threads of different names are kept apart.
    pub threads: bool,
    /// Whether memory that programs map themselves is recorded, too.
    pub mappings: bool,
    /// End the run after this time.
    pub duration: Option<Duration>,
    /// Time between two updates (reports of the live view, chunks of the data file).
    pub interval: Duration,
    /// Most frames of a stack.
    pub max_stack_depth: u32,
    /// Bytes that the kernel's maps, and what the agent keeps beside them, may take.
    pub max_memory: u64,
    /// Most blocks that can be live at a time, where that is not to follow from the memory.
    pub max_live: Option<u32>,
    /// Bytes of the ring between the kernel and the agent, where they are not to follow from the
    /// memory and the CPUs; a power of two, at least a page.
    pub ring_size: Option<u32>,
    /// What unwind tables may take.
    pub tables: TableConfig,
    /// Files that discovery is told are allocators.
    pub allocators: Vec<NamedAllocator>,
    /// Which allocations are recorded.
    pub sampling: Sampling,
    /// What share of a process's processor time may go into probes, in ten-thousandths, if not any.
    pub max_overhead: Option<u32>,
    /// What the probes do.
    pub probes: Probes,
    /// Show the kernel program's own warnings.
    pub verbose: bool,
}

impl RunConfig {
    /// Time between two updates, unless the user says otherwise.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
    /// Most frames that a stack can have.
    pub const MAX_STACK_DEPTH: u32 = limits::MAX_FRAMES as u32;
    /// Bytes of memory, unless the user says otherwise.
    pub const DEFAULT_MEMORY: u64 = 1 << 30;
    /// With less memory than this, too little could be recorded to be of use.
    pub const MIN_MEMORY: u64 = 16 << 20;
    /// Mean bytes between samples of processes that already run, unless the user says otherwise.
    pub const DEFAULT_MEAN: u64 = 512 << 10;
    /// The largest mean.
    pub const MAX_MEAN: u64 = sampling::MAX_MEAN;
    /// Most samples a second of the whole machine, unless the user says otherwise.
    pub const DEFAULT_MAX_SAMPLES: u32 = 10_000;
    /// What share of a process's time may go into probes where the whole machine is traced, unless the user
    /// says otherwise: 5 %.
    pub const DEFAULT_MAX_OVERHEAD: u32 = 500;
    /// Bytes of rows of unwind tables, unless the user says otherwise.
    pub const DEFAULT_TABLE_MEMORY: u64 =
        limits::DEFAULT_SEGMENTS as u64 * limits::SEGMENT_SLOTS as u64 * 8;
    /// The least that is worth a table.
    pub const MIN_TABLE_MEMORY: u64 = 4096;
    /// The most that rows can be counted in.
    pub const MAX_TABLE_MEMORY: u64 = 8 << 30;
    /// The smallest ring: one page.
    pub const MIN_RING_SIZE: u32 = 4096;
    /// The largest ring that the kernel maps reliably.
    pub const MAX_RING_SIZE: u32 = 1 << 30;
}
