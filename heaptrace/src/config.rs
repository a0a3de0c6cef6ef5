//! The configuration of a run, as plain validated values.
//!
//! No stage: `cli/` makes these values, and `session.rs` reads them. Must not parse arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use heaptrace_common::hints::way;
use heaptrace_common::{limits, sampling};

use crate::account::Account;

/// The processes to trace.
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
    /// The target's name in reports: `--pid 12`, `--all`, or the command line.
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

/// The process filter of `--all`. An empty list of names, groups or users allows every process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Patterns of process names, one of which must match.
    pub names: Vec<String>,
    /// Patterns of process names, none of which may match.
    pub excluded: Vec<String>,
    /// Control groups. A process must be in one of them, or in a group below.
    pub cgroups: Vec<PathBuf>,
    /// User ids, one of which must be the process's real user id.
    pub users: Vec<u32>,
}

impl Selection {
    /// As options of the command line, each with a space before it.
    fn describe(&self) -> String {
        let paths = self.cgroups.iter().map(|it| it.display().to_string());
        let options = [
            ("--comm", self.names.clone()),
            ("--exclude", self.excluded.clone()),
            ("--cgroup", paths.collect()),
            ("--user", self.users.iter().map(u32::to_string).collect()),
        ];
        let each = options
            .iter()
            .flat_map(|(option, values)| values.iter().map(move |it| format!(" {option} {it}")));
        each.collect()
    }
}

/// A file that the user names as an allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAllocator {
    /// The file.
    pub path: PathBuf,
    /// The prefix of its function names, before `malloc`, `free` and so on.
    pub prefix: String,
}

/// A limit of live memory; a snapshot is made when it is exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveLimit {
    /// The bytes.
    pub bytes: u64,
    /// Whose they are.
    pub by: LimitedBy,
}

/// Whose live memory is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// Each process's.
    Process,
    /// Each control group's. Groups below one of these belong to it.
    Group(Vec<String>),
}

/// What a probe does at each hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probes {
    /// Record the allocation.
    Full,
    /// Nothing. Benchmarks measure the cost of the trap alone with this, as a baseline.
    Empty,
}

/// Which blocks a data file has one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptBlocks {
    /// None: sums by site alone.
    None,
    /// Those that are not freed before the next update.
    Lasting,
    /// All.
    All,
    /// All, without what of the memory is resident.
    Alone,
}

/// Limits and cache of unwind tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableConfig {
    /// Bytes of kernel memory for their rows.
    pub max_bytes: u64,
    /// The folder in which tables are cached for the next run, if they are cached.
    pub cache: Option<PathBuf>,
}

impl TableConfig {
    /// Number of entries for 64-KiB pages of code. Real code has some six kilobytes of rows for each.
    pub fn pages(&self) -> u32 {
        let pages = u32::try_from(self.max_bytes / 4096).unwrap_or(u32::MAX);
        pages.max(limits::MAX_PAGES)
    }
}

/// Which allocations are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Mean bytes between samples; 1 records every allocation.
    pub mean: u64,
    /// The power of two by which the mean is larger when a run begins. Only with a limit of samples: the limit decides
    /// about later means.
    pub first_shift: u32,
    /// Most samples a second, over all processes. The mean is raised for processes that have more than
    /// their share.
    pub max_per_second: Option<u32>,
    /// Most of its processor time that the samples of a process on the fast path may take, in ten-thousandths. `None`: no such
    /// limit.
    pub max_share: Option<u32>,
    /// The smallest recorded size.
    pub min_size: u64,
    /// The largest recorded size.
    pub max_size: u64,
}

impl RunConfig {
    /// The target and the process filter, as the user gave them.
    pub fn describe_target(&self) -> String {
        format!("{}{}", self.target.describe(), self.selection.describe())
    }
}

impl Sampling {
    /// Every allocation.
    pub const EXACT: Self = Self {
        mean: 1,
        first_shift: 0,
        max_per_second: None,
        max_share: None,
        min_size: 0,
        max_size: u64::MAX,
    };

    /// Whether some allocations are not recorded.
    pub fn is_partial(&self) -> bool {
        self.mean > 1 || self.min_size > 0 || self.max_size < u64::MAX
    }
}

/// The configuration of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// The processes to trace.
    pub target: Target,
    /// The user that a command runs as, if it is not the user of this process.
    pub run_as: Option<Account>,
    /// The process filter, if the target is all processes.
    pub selection: Selection,
    /// Whether processes are traced from their first instruction on, if the target is all processes. Otherwise each one is
    /// reached when it has run for a while.
    pub from_birth: bool,
    /// Whether children of the targets are traced as well.
    pub children: bool,
    /// Whether sites of threads with different names are kept separate.
    pub threads: bool,
    /// Whether sizes, lifetimes and other uses of each site's blocks are recorded.
    pub histogram: bool,
    /// Whether memory that programs map themselves is recorded as well.
    pub mappings: bool,
    /// Which blocks are kept one by one.
    pub blocks: KeptBlocks,
    /// Whether the memory of live blocks is looked at for their classes.
    pub inspect_live: bool,
    /// Whether processes are stopped at marks and at the end, to look for blocks that nothing points to.
    pub reachable: bool,
    /// How long a process is stopped for that at most; `None`: by its memory.
    pub max_stop: Option<Duration>,
    /// The run ends after this time.
    pub duration: Option<Duration>,
    /// Time between two updates (reports of the live view, chunks of the data file).
    pub interval: Duration,
    /// Time between two marks; `None`: only those that are asked for.
    pub mark_every: Option<Duration>,
    /// A mark is also made when this is exceeded.
    pub live_limit: Option<LiveLimit>,
    /// Most frames of a stack.
    pub max_stack_depth: u32,
    /// Bytes that the kernel's maps and the agent's tables may use together.
    pub max_memory: u64,
    /// Most blocks that can be live at a time. `None`: derived from `max_memory`.
    pub max_live: Option<u32>,
    /// Bytes of the ring between the kernel and the agent: a power of two, at least a page. `None`: derived
    /// from the memory and the number of CPUs.
    pub ring_size: Option<u32>,
    /// Limits and cache of unwind tables.
    pub tables: TableConfig,
    /// Files that the user names as allocators.
    pub allocators: Vec<NamedAllocator>,
    /// Folders of debug files, which are searched before the system's.
    pub debug_dirs: Vec<PathBuf>,
    /// Which allocations are recorded.
    pub sampling: Sampling,
    /// Largest share of a process's processor time for probes, in ten-thousandths. `None`: no limit.
    pub max_overhead: Option<u32>,
    /// Whether processes with many probe hits are moved to the fast path.
    pub fast: bool,
    /// What the probes do at each hit.
    pub probes: Probes,
    /// Whether warnings of the kernel program are shown.
    pub verbose: bool,
}

impl RunConfig {
    /// Whether the cost of a probe hit is measured all the time. With the fast path, it becomes much dearer when nearly all hits
    /// are of samples.
    pub fn follows_cost(&self) -> bool {
        self.max_overhead.is_some() || self.fast
    }

    /// What the fast path's code does with a call: a constant of `hints::way`.
    pub fn way(&self) -> u32 {
        match (self.fast, self.sampling.is_partial()) {
            (false, _) => way::NONE,
            (true, true) => way::SAMPLED,
            (true, false) => way::EXACT,
        }
    }

    /// Default time between two updates.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
    /// The largest depth of a stack.
    pub const MAX_STACK_DEPTH: u32 = limits::MAX_FRAMES as u32;
    /// Default of `max_memory`.
    pub const DEFAULT_MEMORY: u64 = 1 << 30;
    /// The least memory. With less, too little could be recorded to be useful.
    pub const MIN_MEMORY: u64 = 16 << 20;
    /// The least mean bytes between samples if the rate follows the load.
    pub const FINEST_MEAN: u64 = 512;
    /// The power of two by which a run begins with a larger mean then: 4 KiB. Before anything was measured, processes that
    /// allocate a lot would have too many samples.
    pub const FIRST_SHIFT: u32 = 3;
    /// The largest mean.
    pub const MAX_MEAN: u64 = sampling::MAX_MEAN;
    /// Default limit of samples a second, for the whole machine, and for a rate that follows the load.
    pub const DEFAULT_MAX_SAMPLES: u32 = 10_000;
    /// What samples may take on the fast path if nothing else is said, 2 %: nearly all that is left of the overhead there. Elsewhere each
    /// call has its trap, and samples cost little beside that.
    pub const FAST_SHARE: u32 = 200;
    /// Default of `max_overhead` for runs of the whole machine: 5 %.
    pub const DEFAULT_MAX_OVERHEAD: u32 = 500;
    /// Default bytes for rows of unwind tables.
    pub const DEFAULT_TABLE_MEMORY: u64 =
        limits::DEFAULT_SEGMENTS as u64 * limits::SEGMENT_SLOTS as u64 * 8;
    /// The least memory for unwind tables.
    pub const MIN_TABLE_MEMORY: u64 = 4096;
    /// The most memory for unwind tables: row numbers reach no further.
    pub const MAX_TABLE_MEMORY: u64 = 8 << 30;
    /// The smallest ring: one page.
    pub const MIN_RING_SIZE: u32 = 4096;
    /// The largest ring that the kernel maps reliably.
    pub const MAX_RING_SIZE: u32 = 1 << 30;
}
