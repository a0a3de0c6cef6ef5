//! The grammar of what a run takes: whom it traces, and how.
//!
//! Part of the command line, no stage of the flow: live mode and `record` have it in common.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{overhead, values};
use crate::account::Account;
use crate::config::{NamedAllocator, Probes, RunConfig, Sampling, Selection, TableConfig, Target};
use crate::unwind;

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Trace this running process; may be given several times
    #[arg(long, value_name = "PID", help_heading = "Target", conflicts_with = "all",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: Vec<u32>,
    /// Trace every process of the machine
    #[arg(long, help_heading = "Target")]
    all: bool,
    /// Start this command and trace it from its first allocation
    #[arg(last = true, value_name = "COMMAND", help_heading = "Target",
          conflicts_with_all = ["pid", "all"])]
    command: Vec<OsString>,
    /// Run the command as this user, with the user's groups, rights and environment [default: as whoever runs
    /// heaptrace, which under sudo is root]
    #[arg(long = "as", value_name = "USER", help_heading = "Target", requires = "command",
          conflicts_with_all = ["pid", "all"], value_parser = values::account)]
    run_as: Option<Account>,
    #[command(flatten)]
    selection: Chosen,
    /// End after this time, e.g. 30s, 5m, 1h30m, 500ms [default: when the target ends, or on Ctrl-C]
    #[arg(long, value_name = "TIME", help_heading = "Run options", value_parser = values::duration)]
    duration: Option<Duration>,
    /// Time between two updates of the table or the data file
    #[arg(long, value_name = "TIME", help_heading = "Run options", default_value = "1s",
          value_parser = values::duration)]
    interval: Duration,
    /// Leave the children of the target alone [default: they are traced, too]
    #[arg(long, help_heading = "Run options")]
    no_children: bool,
    /// A file that is an allocator, with what comes before `malloc` in the names of its functions; may be
    /// given several times [default: those that heaptrace knows]
    #[arg(long, value_name = "PATH[:PREFIX]", help_heading = "Run options", value_parser = values::allocator)]
    allocator: Vec<NamedAllocator>,
    /// Keep threads of different names apart: for --by thread and --filter thread=GLOB
    #[arg(long, help_heading = "Run options")]
    threads: bool,
    /// Record anonymous memory that programs map themselves, too (mmap, munmap, mremap), all of it also in a sample
    #[arg(long, help_heading = "Run options")]
    mmap: bool,
    /// Record every allocation [default: for a command]
    #[arg(long, help_heading = "Run options", conflicts_with = "sample")]
    exact: bool,
    /// Record a sample: on average one allocation in so many bytes [default: 512KiB for --pid and --all]
    #[arg(long, value_name = "SIZE", help_heading = "Run options", value_parser = values::mean)]
    sample: Option<u64>,
    /// Sample less of whoever allocates most where there are more samples than this [default: 10000 for --all]
    #[arg(long, value_name = "N", help_heading = "Run options", conflicts_with = "exact",
          value_parser = clap::value_parser!(u32).range(1..))]
    max_samples_per_second: Option<u32>,
    /// Probe a process in turns, a while on and a while off, where more of its processor time than this goes into
    /// probes; off for never [default: 5 for --all]
    #[arg(long, value_name = "PERCENT", help_heading = "Run options", value_parser = overhead::parse)]
    max_overhead: Option<u32>,
    /// Leave out allocations below this size
    #[arg(long, value_name = "SIZE", help_heading = "Run options", default_value = "0",
          hide_default_value = true, value_parser = values::size)]
    min_size: u64,
    /// Leave out allocations above this size
    #[arg(long, value_name = "SIZE", help_heading = "Run options", value_parser = values::size)]
    max_size: Option<u64>,
    /// Most frames of a stack
    #[arg(long, value_name = "N", help_heading = "Run options", default_value_t = RunConfig::MAX_STACK_DEPTH,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(RunConfig::MAX_STACK_DEPTH)))]
    max_stack_depth: u32,
    /// Most memory for the kernel's maps and what goes with them, unwind tables apart; what finds no place is
    /// counted as lost
    #[arg(long, value_name = "SIZE", help_heading = "Run options", default_value = "1GiB",
          value_parser = values::memory)]
    max_memory: u64,
    /// Most blocks that can be live at a time [default: what half of that memory holds]
    #[arg(long, value_name = "N", help_heading = "Run options",
          value_parser = clap::value_parser!(u32).range(1..=1 << 28))]
    max_live: Option<u32>,
    /// Memory between the kernel and heaptrace, rounded up to a power of two [default: 16MiB for each
    /// CPU, up to a sixteenth of that memory]
    #[arg(long, value_name = "SIZE", help_heading = "Run options", value_parser = values::ring_size)]
    ring_size: Option<u32>,
    /// Memory of the kernel for unwind tables, taken by 2 MiB as they are needed; when it is full, those that
    /// were not used for longest go
    #[arg(long, value_name = "SIZE", help_heading = "Run options", default_value = "256MiB",
          value_parser = values::table_memory)]
    max_table_memory: u64,
    /// Keep unwind tables here between runs [default: /var/cache/heaptrace for root]
    #[arg(
        long,
        value_name = "FOLDER",
        help_heading = "Run options",
        conflicts_with = "no_table_cache"
    )]
    table_cache: Option<PathBuf>,
    /// Keep no unwind tables between runs
    #[arg(long, help_heading = "Run options")]
    no_table_cache: bool,
}

/// What narrows `--all`, in the kernel: what is not wanted is not recorded, and costs little.
#[derive(Debug, Args)]
struct Chosen {
    /// Only processes with such a name, e.g. nginx or 'php-fpm*' (as `ps -o comm` shows it); may be
    /// given several times, as may the others
    #[arg(long, value_name = "GLOB", help_heading = "Which of all processes", conflicts_with_all = ["pid", "command"], value_parser = values::glob)]
    comm: Vec<String>,
    /// No processes with such a name
    #[arg(long, value_name = "GLOB", help_heading = "Which of all processes", conflicts_with_all = ["pid", "command"], value_parser = values::glob)]
    exclude: Vec<String>,
    /// Only processes in this control group or below, e.g. /system.slice/nginx.service
    #[arg(long, value_name = "PATH", help_heading = "Which of all processes", conflicts_with_all = ["pid", "command"])]
    cgroup: Vec<PathBuf>,
    /// Only this user's processes, by name or number
    #[arg(long, value_name = "NAME", help_heading = "Which of all processes", conflicts_with_all = ["pid", "command"], value_parser = values::user)]
    user: Vec<u32>,
}

impl Run {
    /// The run; `None` where no target is named.
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
        let default_mean = match target {
            Target::Command(_) => 1,
            Target::Pids(_) | Target::All => RunConfig::DEFAULT_MEAN,
        };
        let mean = if self.exact {
            1
        } else {
            self.sample.unwrap_or(default_mean)
        };
        let default_most = (target == Target::All).then_some(RunConfig::DEFAULT_MAX_SAMPLES);
        let sampling = Sampling {
            mean,
            max_per_second: self
                .max_samples_per_second
                .or(default_most)
                .filter(|_| mean > 1),
            min_size: self.min_size,
            max_size: self.max_size.unwrap_or(u64::MAX),
        };
        let default_overhead = (target == Target::All).then_some(RunConfig::DEFAULT_MAX_OVERHEAD);
        Some(RunConfig {
            max_overhead: self.max_overhead.or(default_overhead).filter(|it| *it > 0),
            target,
            run_as: self.run_as,
            selection: Selection {
                names: self.selection.comm,
                excluded: self.selection.exclude,
                cgroups: self.selection.cgroup,
                users: self.selection.user,
            },
            sampling,
            children: !self.no_children,
            threads: self.threads,
            mappings: self.mmap,
            duration: self.duration,
            interval: self.interval,
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
            probes,
            verbose,
        })
    }
}
