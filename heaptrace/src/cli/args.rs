//! The grammar of the command line: subcommands and options, as clap defines them.
//!
//! Part of the command line. Turns clap's types into an [`Invocation`], which is plain and validated. Only
//! `cli` knows clap.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::choices::{self, by, color, export_format, format, metric};
use super::diff_args::Diff;
use super::examples::{
    DIFF_EXAMPLES, DOCTOR_EXAMPLES, EXAMPLES, EXPORT_EXAMPLES, FLAMEGRAPH_EXAMPLES, LEAKS_EXAMPLES,
    PPROF_EXAMPLES, RECORD_EXAMPLES, REPORT_EXAMPLES, SYMBOLIZE_EXAMPLES, TIMELINE_EXAMPLES,
    TYPES_EXAMPLES, USAGE, WHO_EXAMPLES,
};
use super::filter_args::Filtering;
use super::input_args::{Input, Languages, Naming, Ranking, Wrapping, Written};
use super::invocation::{self, Action, Color, Format, Invocation, WantedSources};
use super::map_args::Map;
use super::record_args::Record;
use super::run_args::Run;
use super::source_path::SourcePath;
use super::symbolize_args::Symbolize;
use super::timeline_args::Timeline;
use super::types_args::Types;
use super::values;
use super::who_args::Who;
use crate::config::{NamedAllocator, Probes};
use crate::output::{ExportFormat, Label, Metric, SourceChoice};

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
    /// Trace, and record allocations to a data file.
    #[command(
        override_usage = "heaptrace record [OPTIONS] --pid <PID> | --all | -- <COMMAND> [ARGS]...",
        after_help = RECORD_EXAMPLES
    )]
    Record(Box<Record>),
    /// Show a data file as text or JSON.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(Report),
    /// Show what leaks in a data file: sites that grow, and what was not freed at the end.
    #[command(after_help = LEAKS_EXAMPLES)]
    Leaks(Leaks),
    /// Show the memory over time in a data file: a plot, a picture (SVG), CSV or JSON.
    #[command(after_help = TIMELINE_EXAMPLES)]
    Timeline(Box<Timeline>),
    /// Show what the resident memory of processes is made of: blocks, free pages, files; which sites keep it; as a picture, too.
    Map(Box<Map>),
    /// Draw a data file as a flame graph (SVG).
    #[command(after_help = FLAMEGRAPH_EXAMPLES)]
    Flamegraph(Flamegraph),
    /// Convert a data file to a pprof profile (gzipped profile.proto).
    #[command(after_help = PPROF_EXAMPLES)]
    Pprof(Pprof),
    /// Convert a data file to a file of another program: speedscope, Firefox profiler, heaptrack and more.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(Export),
    /// Compare two data files, or two moments of one: what grew, shrank, came and went.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(Box<Diff>),
    /// List the types of the blocks in a data file, each with its memory, its elements, and where it is made.
    #[command(after_help = TYPES_EXAMPLES)]
    Types(Types),
    /// Add names to a data file, from the debug files of this machine.
    #[command(after_help = SYMBOLIZE_EXAMPLES)]
    Symbolize(Symbolize),
    /// Show who owns an address: the block that holds it, the blocks before it, its neighbours.
    #[command(
        override_usage = "heaptrace who [OPTIONS] <ADDR>... [FILE]\n       heaptrace who [OPTIONS] --core <CORE> [ADDR]... [FILE]\n       \
                          heaptrace who [OPTIONS] --pid <PID> <ADDR>...",
        after_help = WHO_EXAMPLES
    )]
    Who(Box<Who>),
    /// Check whether this kernel and your rights allow tracing, and say how to fix what is missing.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(Doctor),
    /// Print the functions at the file offsets on standard input, for programs.
    #[command(hide = true)]
    Names {
        /// File with machine code
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print what the calls before these offsets allocate, instead
        #[arg(long)]
        types: bool,
    },
    /// List the probe locations in the functions of files, as a table for programs.
    #[command(hide = true)]
    Placements {
        /// Files of allocators
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// Print more messages on standard error; twice for details [default: warnings only]
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// When to use colors; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", value_parser = color())]
    color: Color,
}

#[derive(Debug, Args)]
struct Live {
    #[command(flatten)]
    run: Run,
    #[command(flatten)]
    ranking: Ranking,
    /// Group the rows by this key [default: a row for each stack of each process].
    ///
    /// KEY is function, line, module, language, kind, thread, process, pid, cgroup, container, unit, type or element.
    #[arg(long, value_name = "KEY", value_parser = by(&Label::ALL[1..]))]
    by: Option<Label>,
    #[command(flatten)]
    wrapping: Wrapping,
    #[command(flatten)]
    languages: Languages,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    filtering: Filtering,
    /// At the end, print the full report [default: a summary on a terminal, the full report elsewhere]
    #[arg(long)]
    details: bool,
}

#[derive(Debug, Args)]
struct Report {
    #[command(flatten)]
    input: Input,
    /// Output format: text for people, json for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = format())]
    format: Format,
    #[command(flatten)]
    ranking: Ranking,
    /// Group the numbers by this key [default: each stack of each process].
    ///
    /// KEY is stack, function, line, module, language, kind, thread, process, pid, cgroup, container, unit, type or element.
    /// Functions, lines, modules and languages show their own allocations, and in another column also those of the
    /// functions that they call. process groups all processes with one name; pid shows each process. Groups of
    /// processes have the bytes at the peak of each process, at its own time.
    #[arg(long, value_name = "KEY", value_parser = by(&Label::ALL))]
    by: Option<Label>,
    #[command(flatten)]
    wrapping: Wrapping,
    #[command(flatten)]
    naming: Naming,
    /// Show everything that was recorded: processes, allocators, sizes, sampling rates and all counters.
    ///
    /// Without it, a report has only those of them that make its numbers wrong or incomplete. JSON always has all.
    #[arg(long)]
    details: bool,
    /// Show also the sizes and lifetimes of each site's blocks, as bars.
    ///
    /// With them: reallocations and the bytes that they copied, blocks that another thread freed, and what the allocator's rounding of
    /// sizes wastes. JSON always has them.
    #[arg(long, conflicts_with_all = ["by", "source", "snapshots", "from", "since_mark"])]
    histogram: bool,
    /// Show the source files that allocate, with live and allocated memory beside each line, instead of a report.
    ///
    /// A line has what it allocates itself (marked by >) and what it calls. --top is the number of files. With GLOB (--source=GLOB), only
    /// files and functions whose names match are shown, from their first line with memory to the last. Files are read where the
    /// compiler has found them; relative paths begin in this folder. With DEBUGINFOD_URLS, files that are not here are asked of these
    /// servers.
    #[arg(
        long, value_name = "GLOB", num_args = 0..=1, require_equals = true, value_parser = choices::source,
        conflicts_with_all = ["by", "snapshots"]
    )]
    source: Option<Option<SourceChoice>>,
    /// With --source: where source files are here.
    ///
    /// FOLDER is searched for each end of a file's path, the longest first: com/acme/Foo.java, then acme/Foo.java. FROM=TO says that what
    /// was below FROM is below TO, e.g. /build/app=/home/me/app. May be given several times.
    #[arg(long, value_name = "FOLDER|FROM=TO", requires = "source", value_parser = SourcePath::parse)]
    source_path: Vec<SourcePath>,
    /// List the snapshots in the file, instead of a report
    #[arg(long, conflicts_with_all = ["by", "filter", "filters", "at", "from", "to", "metric", "top", "details", "language", "native"])]
    snapshots: bool,
}

#[derive(Debug, Args)]
struct Leaks {
    #[command(flatten)]
    input: Input,
    /// Output format: text for people, json for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = format())]
    format: Format,
    /// Leave out the leaks that this file names, in the format of LeakSanitizer.
    ///
    /// Each line is leak:NAME. NAME is a part of the name of a function, source file or module of the stack; * matches any characters, ^
    /// and $ the ends of the name. What is left out is counted. May be given several times.
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// Number of sites to show in each list [default: 10; all of them in json]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Show also the sites that grew and never shrank, but of which it is not sure that they leak
    #[arg(long)]
    details: bool,
    #[command(flatten)]
    wrapping: Wrapping,
}

#[derive(Debug, Args)]
struct Flamegraph {
    #[command(flatten)]
    input: Input,
    /// Group by this key at the root of the graph [default: each process, if there are several].
    ///
    /// KEY is kind, thread, process, pid, cgroup, container, unit, type or element.
    #[arg(long, value_name = "KEY", value_parser = by(&Label::ALL[5..]))]
    by: Option<Label>,
    /// Show the type of the blocks as the innermost frame of each stack
    #[arg(long)]
    types: bool,
    /// The SVG file to write; - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "heaptrace.svg")]
    output: PathBuf,
    #[command(flatten)]
    written: Written,
    /// The metric that is drawn first [default: live-bytes; left-bytes once all processes have ended]
    ///
    /// In a browser, the file can switch to the others.
    #[arg(long, value_name = "METRIC", value_parser = metric())]
    metric: Option<Metric>,
    #[command(flatten)]
    naming: Naming,
}

#[derive(Debug, Args)]
struct Pprof {
    #[command(flatten)]
    input: Input,
    /// The profile to write; - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "heaptrace.pb.gz")]
    output: PathBuf,
    #[command(flatten)]
    written: Written,
}

#[derive(Debug, Args)]
struct Export {
    #[command(flatten)]
    input: Input,
    /// The format of the file.
    ///
    /// folded: stacks with one number, for flame graph tools. heap-text: gperftools' heap profile, for pprof. jeheap: jemalloc's, for
    /// jeprof. speedscope, firefox (profiler.firefox.com), heaptrack (heaptrack_gui, heaptrack_print): the files of these viewers.
    /// json: the report. csv: a table of all stacks.
    #[arg(long, value_name = "FORMAT", value_parser = export_format())]
    format: ExportFormat,
    /// The file to write; - for standard output [default: heaptrace.folded, heaptrace.heap and so on]
    ///
    /// If its name ends with .gz, it is compressed.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The number of folded stacks, and the one that speedscope and firefox show first [default: live-bytes; left-bytes once all
    /// processes have ended]
    #[arg(long, value_name = "METRIC", value_parser = metric())]
    metric: Option<Metric>,
    #[command(flatten)]
    written: Written,
}

#[derive(Debug, Args)]
struct Doctor {
    /// Check also which allocators of this process can be traced, and whether --fast can move it.
    ///
    /// May be given several times.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: Vec<u32>,
    /// Check also the allocator in this file, as the same option of a trace does
    #[arg(long, value_name = "PATH[:PREFIX]", value_parser = values::allocator)]
    allocator: Vec<NamedAllocator>,
}

/// Why a report since a mark can't be ranked by peaks.
const NO_PEAK: &str = "--since-mark can't be used with --metric peak-bytes: when most of what was allocated since a mark was live is not known";

impl Cli {
    /// The invocation that the arguments stand for; `None` if no target is named.
    pub(super) fn into_invocation(self) -> Option<Invocation> {
        let verbose = self.common.verbose > 0;
        let action = match self.subcommand {
            None => Action::Live {
                run: self.live.run.into_config(Probes::Full, verbose)?,
                ranking: self.live.ranking.of(self.live.by),
                wrappers: self.live.wrapping.into(),
                languages: self.live.languages.into(),
                filters: self.live.filtering.into(),
                full_names: self.live.naming.full_names,
                details: self.live.details,
            },
            Some(Sub::Record(record)) => record.into_action(verbose)?,
            Some(Sub::Report(report)) if report.snapshots => Action::Snapshots {
                input: report.input.into(),
                format: report.format,
            },
            Some(Sub::Report(report)) if report.source.is_some() => Action::Source {
                input: report.input.of(&report.naming),
                format: report.format,
                ranking: invocation::Ranking {
                    details: report.details,
                    ..report.ranking.of(None)
                },
                wrappers: report.wrapping.into(),
                wanted: WantedSources {
                    choice: report.source.flatten(),
                    places: report.source_path,
                },
            },
            Some(Sub::Report(report)) => Action::Report {
                input: report.input.of(&report.naming),
                format: report.format,
                ranking: invocation::Ranking {
                    details: report.details,
                    histogram: report.histogram,
                    ..report.ranking.of(report.by)
                },
                wrappers: report.wrapping.into(),
            },
            Some(Sub::Leaks(leaks)) => Action::Leaks {
                input: invocation::Input {
                    with_history: true,
                    ..leaks.input.into()
                },
                format: leaks.format,
                ranking: invocation::Ranking {
                    by: None,
                    metric: None,
                    top: leaks.top.map(|top| top as usize),
                    details: leaks.details,
                    histogram: false,
                },
                wrappers: leaks.wrapping.into(),
                suppressions: leaks.suppressions,
            },
            Some(Sub::Timeline(timeline)) => Action::from(*timeline),
            Some(Sub::Map(map)) => Action::from(*map),
            Some(Sub::Flamegraph(graph)) => Action::Flamegraph {
                input: graph.input.of(&graph.naming),
                output: graph.output,
                force: graph.written.force,
                metric: graph.metric,
                by: graph.by,
                types: graph.types,
            },
            Some(Sub::Pprof(pprof)) => Action::Pprof {
                input: pprof.input.into(),
                output: pprof.output,
                force: pprof.written.force,
            },
            Some(Sub::Export(export)) => Action::Export {
                input: export.input.into(),
                output: export.output,
                force: export.written.force,
                format: export.format,
                metric: export.metric,
            },
            Some(Sub::Diff(diff)) => Action::from(*diff),
            Some(Sub::Types(types)) => Action::from(types),
            Some(Sub::Symbolize(symbolize)) => Action::from(symbolize),
            Some(Sub::Who(who)) => Action::from(*who),
            Some(Sub::Doctor(doctor)) => Action::Doctor {
                pids: doctor.pid,
                allocators: doctor.allocator,
            },
            Some(Sub::Names { file, types }) => Action::Names { file, types },
            Some(Sub::Placements { files }) => Action::Placements { files },
        };
        Some(Invocation {
            action,
            verbosity: self.common.verbose,
            color: self.common.color,
        })
    }

    /// Why options can't be used together, if they can't.
    pub(super) fn contradiction(&self) -> Option<String> {
        let of_options = match &self.subcommand {
            None => self.live.run.contradiction(),
            Some(Sub::Record(record)) => record.contradiction(),
            Some(Sub::Leaks(leaks)) if leaks.input.has_mark() => Some(
                "--since-mark is for reports and files of other formats: leaks shows what was allocated between all marks",
            ),
            Some(Sub::Report(report)) if report.snapshots && report.input.has_mark() => {
                Some("--since-mark can't be used with --snapshots")
            }
            Some(Sub::Timeline(timeline)) if timeline.input.has_mark() => Some(
                "--since-mark can't be used with timeline: what was allocated since a mark has no course over time; use --from",
            ),
            Some(Sub::Diff(diff)) if diff.lacks_peaks() => Some(NO_PEAK),
            Some(Sub::Map(map)) => map.contradiction(),
            Some(Sub::Report(Report { input, ranking, .. }))
                if input.has_mark() && ranking.is_of_peak() =>
            {
                Some(NO_PEAK)
            }
            Some(
                Sub::Flamegraph(Flamegraph { input, metric, .. })
                | Sub::Types(Types { input, metric, .. })
                | Sub::Export(Export { input, metric, .. }),
            ) if input.has_mark() && *metric == Some(Metric::PeakBytes) =>
            {
                Some(NO_PEAK)
            }
            Some(Sub::Export(export)) if !export.format.has_metric() => export
                .metric
                .map(|_| "--metric is for folded, speedscope and firefox: the other formats have all numbers"),
            Some(_) => None,
        };
        if let Some(Sub::Who(who)) = &self.subcommand {
            return who.contradiction();
        }
        let of_options = of_options.map(str::to_owned);
        of_options.or_else(|| self.filtering()?.contradiction())
    }

    /// The options that select allocations.
    fn filtering(&self) -> Option<&Filtering> {
        match self.subcommand.as_ref() {
            None => Some(&self.live.filtering),
            Some(Sub::Report(it)) => Some(&it.input.filtering),
            Some(Sub::Leaks(it)) => Some(&it.input.filtering),
            Some(Sub::Timeline(it)) => Some(&it.input.filtering),
            Some(Sub::Map(it)) => Some(&it.input().filtering),
            Some(Sub::Flamegraph(it)) => Some(&it.input.filtering),
            Some(Sub::Pprof(it)) => Some(&it.input.filtering),
            Some(Sub::Export(it)) => Some(&it.input.filtering),
            Some(Sub::Diff(it)) => Some(&it.filtering),
            Some(Sub::Types(it)) => Some(&it.input.filtering),
            Some(
                Sub::Record(_)
                | Sub::Symbolize(_)
                | Sub::Who(_)
                | Sub::Doctor(_)
                | Sub::Names { .. }
                | Sub::Placements { .. },
            ) => None,
        }
    }

    /// Whether the subcommand is `record`.
    pub(super) fn is_record(&self) -> bool {
        matches!(self.subcommand, Some(Sub::Record(_)))
    }
}
