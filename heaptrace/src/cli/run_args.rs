//! The options of a run: which processes it traces, and how.
//!
//! Part of the command line. Live mode and `record` share them. Must not know how a run is made.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};

use super::{overhead, values};
use crate::account::Account;
use crate::config::{
    KeptBlocks, LimitedBy, LiveLimit, NamedAllocator, Probes, RunConfig, Sampling, Selection,
    TableConfig, Target,
};
use crate::unwind;

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Trace this running process.
    ///
    /// May be given several times, to trace several processes. The run ends when all of them have ended.
    #[arg(long, value_name = "PID", help_heading = "Target", conflicts_with = "all",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: Vec<u32>,
    /// Trace every process of the machine.
    ///
    /// The run ends on Ctrl-C or after --duration. Use a process filter (below) to record only some of the
    /// processes; the others pay for the probes, too.
    #[arg(long, help_heading = "Target")]
    all: bool,
    /// Start this command, and trace it from its first allocation until it ends
    #[arg(last = true, value_name = "COMMAND", help_heading = "Target",
          conflicts_with_all = ["pid", "all"])]
    command: Vec<OsString>,
    /// Run the command as this user, by name or number [default: the user that runs heaptrace].
    ///
    /// The command gets the groups, rights and environment of that user. Use it under sudo, where the command
    /// would run as root otherwise.
    #[arg(long = "as", value_name = "USER", help_heading = "Target", requires = "command",
          conflicts_with_all = ["pid", "all"], value_parser = values::account)]
    run_as: Option<Account>,
    #[command(flatten)]
    filter: ProcessFilter,
    /// End the run after this time, e.g. 500ms, 30s, 5m or 1h30m [default: no limit].
    ///
    /// The run also ends when all targets have ended, or on Ctrl-C.
    #[arg(long, value_name = "TIME", help_heading = "Run options", value_parser = values::duration)]
    duration: Option<Duration>,
    /// Time between two updates of the table or the data file.
    ///
    /// With `record`, each update is a snapshot that `heaptrace report --at` can show. A longer interval
    /// makes the file smaller.
    #[arg(long, value_name = "TIME", help_heading = "Run options", default_value = "1s",
          value_parser = values::duration)]
    interval: Duration,
    /// Make a mark after each such time, e.g. 30s or 10m [default: only when asked for].
    ///
    /// What is allocated between two marks is counted apart: `heaptrace leaks` shows how much of it lives on at each later mark, and
    /// `heaptrace report --since-mark` what was allocated since one. SIGUSR2 to heaptrace, and the key m of the table, make a mark at any
    /// time. At most 64 marks are kept: if there are more, every second one is dropped.
    #[arg(long, value_name = "TIME", help_heading = "Run options", value_parser = values::duration)]
    mark_every: Option<Duration>,
    /// Make a mark and a snapshot when the live memory of a process exceeds this size, e.g. 512MiB, and again at each doubling.
    ///
    /// With :cgroup behind the size, and with --cgroup, it is the memory of all traced processes of a control group. Live memory is looked at
    /// ten times a second. In a run that takes a sample, it is an estimate. `heaptrace report` lists the marks.
    #[arg(long, value_name = "SIZE[:cgroup]", help_heading = "Run options", value_parser = values::live_limit)]
    when_live_exceeds: Option<(u64, bool)>,
    /// Don't trace the children of the target [default: they are traced]
    #[arg(long, help_heading = "Run options")]
    no_children: bool,
    /// Trace the allocator in this file, too.
    ///
    /// Use it if heaptrace does not find the allocator by itself. PREFIX is the part of the function names
    /// before `malloc`, `free` and so on: my_ for my_malloc. May be given several times.
    #[arg(long, value_name = "PATH[:PREFIX]", help_heading = "Run options", value_parser = values::allocator)]
    allocator: Vec<NamedAllocator>,
    /// Record the names of threads.
    ///
    /// Needed for --by thread and --filter thread=GLOB. The profile gets larger, because the allocations of
    /// each thread name are counted separately.
    #[arg(long, help_heading = "Run options")]
    threads: bool,
    /// Record the sizes and lifetimes of each site's blocks, too, for `heaptrace report --histogram`.
    ///
    /// With them: reallocations and the bytes that they copied, blocks that another thread freed, and what the allocator's rounding
    /// wastes. The data file gets larger by half, or by the same again.
    #[arg(long, help_heading = "Run options")]
    histogram: bool,
    /// Leave out the anonymous memory that programs map themselves (mmap, munmap, mremap).
    ///
    /// Such mappings are few, and each is recorded exactly, also if allocations are sampled. Reports keep them
    /// apart from the heap.
    #[arg(long, help_heading = "Run options")]
    no_mmap: bool,
    /// The default; kept for scripts that say it.
    #[arg(long, hide = true, conflicts_with = "no_mmap")]
    mmap: bool,
    /// Record every allocation [default for a command].
    ///
    /// Exact numbers, at a higher cost. --pid and --all take a sample unless this is given.
    #[arg(long, help_heading = "Run options", conflicts_with = "sample")]
    exact: bool,
    /// Record a sample: on average one for each SIZE of allocated bytes [default for --pid and --all: by load].
    ///
    /// Reports then show estimates, with their ranges. A smaller SIZE gives more exact numbers at a higher
    /// cost. Without this, the rate begins at 4KiB, and follows the load of each process, down to 512B where little is allocated
    /// (see --max-samples-per-second).
    #[arg(long, value_name = "SIZE", help_heading = "Run options", value_parser = values::mean)]
    sample: Option<u64>,
    /// Limit the samples per second of all processes together [default: 10000; no limit for --pid with --sample].
    ///
    /// If there are more samples, the processes that allocate most are sampled less. Without this, a process on the fast path (--fast) also has at
    /// most as many as take 2 % of its processor time.
    #[arg(long, value_name = "N", help_heading = "Run options", conflicts_with = "exact",
          value_parser = clap::value_parser!(u32).range(1..))]
    max_samples_per_second: Option<u32>,
    /// Limit the share of each process's processor time that goes into probes, in percent, or off [default: 5 for
    /// --all, else off].
    ///
    /// A process over the limit is traced on a duty cycle: it is traced for a while and paused for a while. Its
    /// allocations while it is paused are not seen. The report names such processes. --fast lowers the cost
    /// of probes in processes that allocate much.
    #[arg(long, value_name = "PERCENT", help_heading = "Run options", value_parser = overhead::parse)]
    max_overhead: Option<u32>,
    /// Move busy processes to the fast path: calls that are not sampled don't trap there.
    ///
    /// heaptrace then writes into a process: it maps 660 KiB of code and data, and lets the process's linkage slots lead
    /// there. At the end of the run the slots get their old values back; the memory stays until the process ends. Without
    /// --fast, heaptrace writes nothing into any process. A run with --fast takes a sample, unless --exact is given: then every call
    /// traps, but most only once; --min-size and --max-size can't be used with it then. `heaptrace doctor --pid PID` says whether a process can be moved; docs/fast.md says what is done to it.
    #[arg(long, help_heading = "Run options")]
    fast: bool,
    /// With --all: trace processes from their first instruction on, also those that run for less than a second.
    ///
    /// Without it, --all reaches a process when it has run for a second. Shorter ones pay nothing for tracing, and the report
    /// counts them by name. What a process allocated before it was reached counts as memory from before tracing. With it,
    /// every process of the machine is slowed down from its start.
    #[arg(long, help_heading = "Run options", conflicts_with_all = ["pid", "command"])]
    from_birth: bool,
    /// Don't record allocations smaller than this, e.g. 64 or 4KiB [default: 0]
    #[arg(long, value_name = "SIZE", help_heading = "Run options", default_value = "0",
          hide_default_value = true, value_parser = values::size)]
    min_size: u64,
    /// Don't record allocations larger than this [default: no limit]
    #[arg(long, value_name = "SIZE", help_heading = "Run options", value_parser = values::size)]
    max_size: Option<u64>,
    /// Most frames of a stack.
    ///
    /// Deeper stacks are cut, and reports count them as truncated.
    #[arg(long, value_name = "N", help_heading = "Run options", default_value_t = RunConfig::MAX_STACK_DEPTH,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(RunConfig::MAX_STACK_DEPTH)))]
    max_stack_depth: u32,
    /// Most memory for the kernel's maps and the tables that belong to them, without unwind tables.
    ///
    /// Events without room are counted as lost in every report. Raise it if a report shows losses.
    #[arg(long, value_name = "SIZE", help_heading = "Run options", default_value = "1GiB",
          value_parser = values::memory)]
    max_memory: u64,
    /// Most blocks that can be live at the same time [default: as many as half of --max-memory holds, or 50 for each of
    /// --max-samples-per-second]
    #[arg(long, value_name = "N", help_heading = "Run options",
          value_parser = clap::value_parser!(u32).range(1..=1 << 28))]
    max_live: Option<u32>,
    /// Size of the buffer of events between the kernel and heaptrace [default: 16MiB for each CPU, at most a
    /// sixteenth of --max-memory; 4MiB with a limit of samples, 8MiB for --all].
    ///
    /// It is rounded up to a power of two. Raise it if a report shows lost events of a full ring.
    #[arg(long, value_name = "SIZE", help_heading = "Run options", value_parser = values::ring_size)]
    ring_size: Option<u32>,
    /// Most memory of the kernel for unwind tables.
    ///
    /// It is allocated as needed, 2 MiB at a time. When it is full, the tables that were not used for longest
    /// are evicted.
    #[arg(long, value_name = "SIZE", help_heading = "Run options", default_value = "256MiB",
          value_parser = values::table_memory)]
    max_table_memory: u64,
    /// Keep unwind tables in this folder between runs [default: /var/cache/heaptrace for root].
    ///
    /// Later runs need not make the kept tables again. The default for other users is below $XDG_CACHE_HOME.
    #[arg(
        long,
        value_name = "FOLDER",
        help_heading = "Run options",
        conflicts_with = "no_table_cache"
    )]
    table_cache: Option<PathBuf>,
    /// Don't keep unwind tables between runs
    #[arg(long, help_heading = "Run options")]
    no_table_cache: bool,
    /// Search for debug files in this folder, too, before /usr/lib/debug.
    ///
    /// As there, they are found by build id (FOLDER/.build-id/ab/cdef.debug) or by name. A file counts only if it has the build id of the
    /// file that was traced. May be given several times.
    #[arg(long, value_name = "FOLDER", help_heading = "Run options", value_parser = values::folder)]
    debug_dir: Vec<PathBuf>,
}

/// The process filter of `--all`. It works in the kernel program: processes that are not selected are not recorded, but
/// they pay for the traps of the probes.
#[derive(Debug, Args)]
struct ProcessFilter {
    /// Record only processes with this name, e.g. nginx or 'php-fpm*'.
    ///
    /// The name is the one that `ps -o comm` shows. May be given several times, as all options of this group.
    /// These options select what is recorded. All processes still pay for the traps of the probes: about a
    /// microsecond for each call of an allocator, within --max-overhead. --pid spares all others.
    #[arg(long, value_name = "GLOB", help_heading = "Process filter of --all", conflicts_with_all = ["pid", "command"], value_parser = values::glob)]
    comm: Vec<String>,
    /// Don't record processes with this name
    #[arg(long, value_name = "GLOB", help_heading = "Process filter of --all", conflicts_with_all = ["pid", "command"], value_parser = values::glob)]
    exclude: Vec<String>,
    /// Record only processes in this control group or below it, e.g. /system.slice/nginx.service
    #[arg(long, value_name = "PATH", help_heading = "Process filter of --all", conflicts_with_all = ["pid", "command"])]
    cgroup: Vec<PathBuf>,
    /// Record only processes of this user, by name or number
    #[arg(long, value_name = "NAME", help_heading = "Process filter of --all", conflicts_with_all = ["pid", "command"], value_parser = values::user)]
    user: Vec<u32>,
}

/// The options of a run alone, with their defaults.
#[derive(Debug, Parser)]
struct Alone {
    #[command(flatten)]
    run: Run,
}

/// The configuration of a run that records every allocation of a running process.
pub(super) fn exact(pid: u32) -> Option<RunConfig> {
    let words = ["heaptrace", "--exact", "--pid", &pid.to_string()];
    let alone = Alone::try_parse_from(words).ok()?;
    alone.run.into_config(Probes::Full, false)
}

impl Run {
    /// Why options can't be used together, if they can't.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let selects_sizes = self.min_size > 0 || self.max_size.is_some();
        let is_exact = self.exact || self.sample == Some(1);
        (self.fast && is_exact && selects_sizes).then_some(
            "--fast can't be used with --exact and --min-size or --max-size: the fast path's code does not know sizes; \
             leave out --fast, or take a sample instead of --exact",
        )
    }

    /// The configuration of the run; `None` if no target is named.
    pub(super) fn into_config(self, probes: Probes, verbose: bool) -> Option<RunConfig> {
        let target = if self.all {
            Target::All
        } else if !self.pid.is_empty() {
            let mut pids = self.pid;
            pids.sort_unstable();
            pids.dedup();
            Target::Pids(pids)
        } else if !self.command.is_empty() {
            Target::Command(self.command)
        } else {
            return None;
        };
        let is_command = matches!(target, Target::Command(_));
        let (mean, first_shift) = match self.sample {
            Some(mean) => (mean, 0),
            None if self.exact || (is_command && !self.fast) => (1, 0),
            None => (RunConfig::FINEST_MEAN, RunConfig::FIRST_SHIFT),
        };
        let is_limited = target == Target::All || first_shift > 0;
        let default_most = is_limited.then_some(RunConfig::DEFAULT_MAX_SAMPLES);
        let default_overhead = (target == Target::All).then_some(RunConfig::DEFAULT_MAX_OVERHEAD);
        let max_overhead = self.max_overhead.or(default_overhead).filter(|it| *it > 0);
        let is_given = self.max_samples_per_second.is_some();
        let sampling = Sampling {
            mean,
            first_shift,
            max_share: (self.fast && is_limited && !is_given)
                .then(|| RunConfig::FAST_SHARE.min(max_overhead.unwrap_or(u32::MAX))),
            max_per_second: self
                .max_samples_per_second
                .or(default_most)
                .filter(|_| mean > 1),
            min_size: self.min_size,
            max_size: self.max_size.unwrap_or(u64::MAX),
        };
        let is_of_groups = |is_given| is_given || !self.filter.cgroup.is_empty();
        let groups = self.filter.cgroup.iter().map(|it| it.to_string_lossy());
        let live_limit = self.when_live_exceeds.map(|(bytes, is_given)| LiveLimit {
            bytes,
            by: match is_of_groups(is_given) {
                true => LimitedBy::Group(groups.map(Into::into).collect()),
                false => LimitedBy::Process,
            },
        });
        Some(RunConfig {
            max_overhead,
            target,
            run_as: self.run_as,
            selection: Selection {
                names: self.filter.comm,
                excluded: self.filter.exclude,
                cgroups: self.filter.cgroup,
                users: self.filter.user,
            },
            sampling,
            from_birth: self.from_birth,
            children: !self.no_children,
            threads: self.threads,
            histogram: self.histogram,
            mappings: !self.no_mmap,
            blocks: KeptBlocks::None,
            inspect_live: false,
            reachable: false,
            max_stop: None,
            duration: self.duration,
            interval: self.interval,
            mark_every: self.mark_every,
            live_limit,
            max_stack_depth: self.max_stack_depth,
            max_memory: self.max_memory,
            max_live: self.max_live,
            ring_size: self.ring_size,
            tables: TableConfig {
                max_bytes: self.max_table_memory,
                cache: if self.no_table_cache {
                    None
                } else {
                    self.table_cache.or_else(unwind::default_folder)
                },
            },
            allocators: self.allocator,
            debug_dirs: self.debug_dir,
            fast: self.fast,
            probes,
            verbose,
        })
    }
}
