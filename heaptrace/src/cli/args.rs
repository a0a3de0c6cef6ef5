//! The grammar of the command line, in clap's terms.
//!
//! Part of the command line, no stage of the flow: clap is known here and nowhere else. What leaves
//! this file is an [`Invocation`], plain and validated.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use super::choices::{by, color, filter, format, metric, probes};
use super::run_args::Run;
use super::values;
use super::{Action, Color, Format, Invocation, Rotation};
use crate::config::{NamedAllocator, Probes};
use crate::output::{Filter, Label, Metric};

const USAGE: &str = "heaptrace [OPTIONS] --pid <PID> | --all | -- <COMMAND> [ARGS]...\n       \
                     heaptrace record|report|flamegraph|pprof|doctor [OPTIONS]";

const EXAMPLES: &str = "\
Examples:
  sudo heaptrace --pid 1234                       watch a running process
  sudo heaptrace --all                            watch the whole machine
  sudo heaptrace --all --by process               which programs have how much
  sudo heaptrace --all --comm 'php-fpm*'          watch every process of that name
  sudo heaptrace -- ./server --port 80            start a command, watch it from the start
  sudo heaptrace record -- ./server --port 80     record it, then look at the record:
  heaptrace report                                  as text (--format json for programs)
  heaptrace flamegraph                              as an SVG
  heaptrace pprof                                   for `go tool pprof` and its like
  sudo heaptrace doctor                           what to do where it does not work

`heaptrace <SUBCOMMAND> --help` tells more of each.";

const RECORD_EXAMPLES: &str = "\
Examples:
  sudo heaptrace record -- ls -l                  a command, from its first allocation to its end
  sudo heaptrace record --pid 12 --pid 34         running processes, until they end or Ctrl-C
  sudo heaptrace record --all --duration 30s      the whole machine, for half a minute
  sudo heaptrace record -o /tmp/ls.data -- ls     to a file of your choice
  sudo heaptrace record --as www-data -- ./server
                                                  as another user, with that user's rights
  sudo heaptrace record --all --interval 10s --rotate 1h,24
                                                  for as long as it runs: a snapshot every 10 seconds,
                                                  a file every hour, those of the last day

SIGUSR1 writes a snapshot now; a file can be read while it is written.

The exit status of a command is passed on. Then: heaptrace report, flamegraph or pprof.";

const REPORT_EXAMPLES: &str = "\
Examples:
  heaptrace report                                what was not freed, largest first
  heaptrace report --metric total-allocations     who allocates most often
  heaptrace report --metric peak-bytes --top 5    what memory was needed for at the peak
  heaptrace report --by process                   which programs have how much
  heaptrace report --by function --filter process=nginx
  heaptrace report --filter 'module=libssl*'      what goes through a library
  heaptrace report --snapshots                    when there was how much
  heaptrace report --at 2h heaptrace.data.3       as it was then, in an older file
  heaptrace report --format json | jq .totals     for programs

Exits with 1 where the file is damaged: what could be read of it is shown all the same. One that is only cut short, as
its writer was killed, is no error.";

const FLAMEGRAPH_EXAMPLES: &str = "\
Examples:
  heaptrace flamegraph                            heaptrace.data to heaptrace.svg
  heaptrace flamegraph --metric total-bytes       everything that was allocated, freed or not
  heaptrace flamegraph --by cgroup                control groups at the root
  heaptrace flamegraph --filter 'container=4d2f*' of one container
  heaptrace flamegraph old.data -o old.svg        another file";

const PPROF_EXAMPLES: &str = "\
Examples:
  heaptrace pprof                                 heaptrace.data to heaptrace.pb.gz
  go tool pprof -http=: heaptrace.pb.gz           look at it
  heaptrace pprof --filter unit=nginx.service     of one service
  go tool pprof -tags heaptrace.pb.gz             pid, process, cgroup, container and unit of each sample
  go tool pprof -sample_index=alloc_space -top heaptrace.pb.gz";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  sudo heaptrace doctor                           whether tracing can work on this machine
  sudo heaptrace doctor --pid 1234                and what of a process can be traced

Exits with 0 where tracing can work, with 1 otherwise. Run it as you would run a trace (sudo heaptrace doctor).";

/// See where a running program's heap memory comes from, without changing or restarting it.
#[derive(Debug, Parser)]
#[command(
    name = "heaptrace",
    version,
    override_usage = USAGE,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_help_heading = "Subcommands",
    subcommand_value_name = "SUBCOMMAND"
)]
pub(super) struct Cli {
    #[command(subcommand)]
    subcommand: Option<Sub>,
    #[command(flatten)]
    live: Live,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Trace, and write what is found to a data file.
    #[command(
        override_usage = "heaptrace record [OPTIONS] --pid <PID> | --all | -- <COMMAND> [ARGS]...",
        after_help = RECORD_EXAMPLES
    )]
    Record(Box<Record>),
    /// Show what a data file holds, as text or JSON.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(Report),
    /// Draw a data file as a flame graph (SVG).
    #[command(after_help = FLAMEGRAPH_EXAMPLES)]
    Flamegraph(Flamegraph),
    /// Convert a data file to a pprof profile (gzipped profile.proto).
    #[command(after_help = PPROF_EXAMPLES)]
    Pprof(Pprof),
    /// Say what this kernel and these rights allow, and what to do about what they don't.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(Doctor),
    /// Say where in a file's functions probes go, as a table for programs.
    #[command(hide = true)]
    Placements {
        /// Files of allocators.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// Tell more on standard error; twice for details [default: warnings only]
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Whether to use colors; auto is on a terminal only, and not where NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", value_parser = color())]
    color: Color,
}

#[derive(Debug, Args)]
struct Live {
    #[command(flatten)]
    run: Run,
    #[command(flatten)]
    ranking: Ranking,
    /// Put together what has a name in common. KEY is function, line, module, kind, thread, process, pid, cgroup,
    /// container or unit [default: each stack of each process]
    #[arg(long, value_name = "KEY", value_parser = by(&Label::ALL[1..]))]
    by: Option<Label>,
}

#[derive(Debug, Args)]
struct Record {
    #[command(flatten)]
    run: Run,
    /// The data file to write
    #[arg(short, long, value_name = "FILE", default_value = "heaptrace.data")]
    output: PathBuf,
    /// Begin a new file after so much, or so long, and keep the last ones as FILE.1, FILE.2, …: e.g.
    /// 64MiB, 1h, or 1h,24 to keep 24 of them, with FILE itself [default: one file; keep 5]
    #[arg(long, value_name = "SIZE|TIME[,KEEP]", value_parser = Rotation::parse)]
    rotate: Option<Rotation>,
    /// What the probes do: `full` records, `empty` does nothing (for benchmarks)
    #[arg(long, hide = true, default_value = "full", value_parser = probes())]
    probes: Probes,
}

#[derive(Debug, Args)]
struct Report {
    #[command(flatten)]
    input: Input,
    /// What to write: text for people, json for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = format())]
    format: Format,
    #[command(flatten)]
    ranking: Ranking,
    /// Put together what has a name in common. KEY is stack, function, line, module, kind, thread, process,
    /// pid, cgroup, container or unit. Functions, lines and modules show what they allocate
    /// themselves, and beside it what is allocated anywhere below them; process is all processes of
    /// one name, pid each of them [default: each stack of each process]
    #[arg(long, value_name = "KEY", value_parser = by(&Label::ALL))]
    by: Option<Label>,
    /// List the snapshots that are in the file, instead
    #[arg(long, conflicts_with_all = ["by", "filter", "at", "metric", "top"])]
    snapshots: bool,
}

#[derive(Debug, Args)]
struct Flamegraph {
    #[command(flatten)]
    input: Input,
    /// What stands at the root of the graph: kind, thread, process, pid, cgroup, container or unit
    /// [default: each process, where there are several]
    #[arg(long, value_name = "KEY", value_parser = by(&Label::ALL[4..]))]
    by: Option<Label>,
    /// The SVG file to write; - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "heaptrace.svg")]
    output: PathBuf,
    /// What the width of a frame stands for
    #[arg(long, value_name = "METRIC", default_value = Metric::default().name(), value_parser = metric())]
    metric: Metric,
}

#[derive(Debug, Args)]
struct Pprof {
    #[command(flatten)]
    input: Input,
    /// The profile to write; - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "heaptrace.pb.gz")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct Doctor {
    /// Say which allocators this running process has, and what of them can be traced; may be given
    /// several times
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: Vec<u32>,
    /// A file that is an allocator, as for a trace
    #[arg(long, value_name = "PATH[:PREFIX]", value_parser = values::allocator)]
    allocator: Vec<NamedAllocator>,
}

#[derive(Debug, Args)]
struct Input {
    /// The data file to read
    #[arg(value_name = "FILE", default_value = "heaptrace.data")]
    file: PathBuf,
    /// Look at the run as it was so long after its beginning, by the last snapshot until then
    /// [default: at its end]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    at: Option<Duration>,
    /// Look only at what has a name, e.g. function=main, process=nginx, module=libssl*; may be given
    /// several times, and then all must fit. KEY is function, line, module, kind, thread, process, pid,
    /// cgroup, container or unit; GLOB is all of the name, * stands for any characters, ? for one; upper and
    /// lower case differ
    #[arg(long, value_name = "KEY=GLOB", value_parser = filter)]
    filter: Vec<Filter>,
    /// Most memory for what the file holds; at a file that needs more, reading ends there [default: 256MiB, and
    /// 256 bytes for each byte of the file]
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    max_memory: Option<u64>,
}

#[derive(Debug, Args)]
struct Ranking {
    /// What to rank by
    #[arg(long, value_name = "METRIC", default_value = Metric::default().name(), value_parser = metric())]
    metric: Metric,
    /// How many stacks, or groups, to show [default: 10; all in json]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
}

impl Cli {
    /// What the words mean; `None` where there is nothing to do.
    pub(super) fn into_invocation(self) -> Option<Invocation> {
        let verbose = self.common.verbose > 0;
        let action = match self.subcommand {
            None => Action::Live {
                run: self.live.run.into_config(Probes::Full, verbose)?,
                ranking: self.live.ranking.of(self.live.by),
            },
            Some(Sub::Record(record)) => Action::Record {
                run: record.run.into_config(record.probes, verbose)?,
                output: record.output,
                rotate: record.rotate,
            },
            Some(Sub::Report(report)) if report.snapshots => Action::Snapshots {
                input: report.input.into(),
                format: report.format,
            },
            Some(Sub::Report(report)) => Action::Report {
                input: report.input.into(),
                format: report.format,
                ranking: report.ranking.of(report.by),
            },
            Some(Sub::Flamegraph(graph)) => Action::Flamegraph {
                input: graph.input.into(),
                output: graph.output,
                metric: graph.metric,
                by: graph.by,
            },
            Some(Sub::Pprof(pprof)) => Action::Pprof {
                input: pprof.input.into(),
                output: pprof.output,
            },
            Some(Sub::Doctor(doctor)) => Action::Doctor {
                pids: doctor.pid,
                allocators: doctor.allocator,
            },
            Some(Sub::Placements { files }) => Action::Placements { files },
        };
        Some(Invocation {
            action,
            verbosity: self.common.verbose,
            color: self.common.color,
        })
    }

    /// Whether the words begin a recording.
    pub(super) fn is_record(&self) -> bool {
        matches!(self.subcommand, Some(Sub::Record(_)))
    }
}

impl From<Input> for super::Input {
    fn from(input: Input) -> Self {
        Self {
            file: input.file,
            at: input.at,
            filters: input.filter,
            max_memory: input.max_memory,
        }
    }
}

impl Ranking {
    fn of(&self, by: Option<Label>) -> super::Ranking {
        super::Ranking {
            by,
            metric: self.metric,
            top: self.top.map(|top| top as usize),
        }
    }
}
