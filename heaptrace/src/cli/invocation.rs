//! The result of parsing a command line: plain, validated configuration.
//!
//! Part of the command line. Must not know clap, nor how an action is done.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use super::moment::Moment;
use super::question::Asked;
use super::rotation::Rotation;
use super::source_path::SourcePath;
use crate::config::{NamedAllocator, RunConfig};
use crate::output::{
    DiffFormat, ExportFormat, Expression, Grouping, Label, MapColor, Metric, ShownLanguages,
    SourceChoice, TimelineFormat, WantedMark, Wrappers,
};
use crate::profile::Profile;

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// What heaptrace must do.
    pub action: Action,
    /// How often `-v` was given.
    pub verbosity: u8,
    /// When to use colors.
    pub color: Color,
}

/// What heaptrace must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Trace, and show a live table.
    Live {
        /// The run.
        run: RunConfig,
        /// How the output is grouped and ranked.
        ranking: Ranking,
        /// The functions that are not shown as the ones that allocate.
        wrappers: Wrappers,
        /// The languages whose frames are shown.
        languages: ShownLanguages,
        /// What selects allocations.
        filters: Filters,
        /// Whether names of functions are as compilers have them.
        full_names: bool,
        /// Whether the end is the full report, also on a terminal.
        details: bool,
    },
    /// Trace, and write a data file.
    Record {
        /// The run.
        run: RunConfig,
        /// The data file.
        output: PathBuf,
        /// When a new data file begins, if ever.
        rotate: Option<Rotation>,
        /// The command that is run when a process was killed for lack of memory, if any.
        on_oom: Option<OsString>,
    },
    /// Show a data file.
    Report {
        /// The data file.
        input: Input,
        /// The format of the output.
        format: Format,
        /// How the output is grouped and ranked.
        ranking: Ranking,
        /// The functions that are not shown as the ones that allocate.
        wrappers: Wrappers,
    },
    /// Show the source files of a data file.
    Source {
        /// The data file.
        input: Input,
        /// The format of the output.
        format: Format,
        /// How files are ranked.
        ranking: Ranking,
        /// The functions that are not shown as the ones that allocate.
        wrappers: Wrappers,
        /// The source files.
        wanted: WantedSources,
    },
    /// Show what leaks in a data file.
    Leaks {
        /// The data file.
        input: Input,
        /// The format of the output.
        format: Format,
        /// How many are shown.
        ranking: Ranking,
        /// The functions that are not shown as the ones that allocate.
        wrappers: Wrappers,
        /// Files of known leaks.
        suppressions: Vec<PathBuf>,
    },
    /// Show the memory of a run over time.
    Timeline {
        /// The data file.
        input: Input,
        /// What is followed.
        ranking: Ranking,
        /// The functions that are not shown as the ones that allocate.
        wrappers: Wrappers,
        /// The format of the output.
        format: TimelineFormat,
        /// The file; `-` for standard output.
        output: PathBuf,
        /// Whether it replaces a file that heaptrace has not made.
        force: bool,
    },
    /// Show what resident memory is made of.
    Map {
        /// The data file.
        input: Input,
        /// The functions that are not shown as the ones that allocate.
        wrappers: Wrappers,
        /// What is shown.
        options: MapOptions,
        /// The file; `-` for standard output.
        output: PathBuf,
        /// Whether it replaces a file that heaptrace has not made.
        force: bool,
    },
    /// List the snapshots of a data file.
    Snapshots {
        /// The data file.
        input: Input,
        /// The format of the output.
        format: Format,
    },
    /// Draw a data file as a flame graph.
    Flamegraph {
        /// The data file.
        input: Input,
        /// The SVG file.
        output: PathBuf,
        /// Whether it replaces a file that heaptrace has not made.
        force: bool,
        /// The number that the width of a frame shows, if the user chose one.
        metric: Option<Metric>,
        /// The key at the root of the graph.
        by: Option<Label>,
        /// Whether the type of the blocks is the innermost frame.
        types: bool,
    },
    /// Convert a data file to a pprof profile.
    Pprof {
        /// The data file.
        input: Input,
        /// The profile.
        output: PathBuf,
        /// Whether it replaces a file that heaptrace has not made.
        force: bool,
    },
    /// Convert a data file to a file of another program.
    Export {
        /// The data file.
        input: Input,
        /// The file; `None` for the usual one of the format.
        output: Option<PathBuf>,
        /// Whether it replaces a file that heaptrace has not made.
        force: bool,
        /// The format.
        format: ExportFormat,
        /// The number of formats that have one, if the user chose it.
        metric: Option<Metric>,
    },
    /// Compare two data files.
    Diff {
        /// The data file to compare with.
        old: Input,
        /// The data file that is compared.
        new: Input,
        /// What is compared, and how much of it is shown.
        ranking: Ranking,
        /// The functions that are not shown as the ones that allocate.
        wrappers: Wrappers,
        /// The format of the output.
        format: DiffFormat,
        /// The file; `-` for standard output.
        output: PathBuf,
        /// Whether it replaces a file that heaptrace has not made.
        force: bool,
    },
    /// List the types of the blocks in a data file.
    Types {
        /// The data file.
        input: Input,
        /// The format of the output.
        format: Format,
        /// What is listed, how it is ranked, and how many are shown.
        ranking: Ranking,
        /// The functions that are not shown as the ones that allocate.
        wrappers: Wrappers,
    },
    /// Add names to a data file.
    Symbolize {
        /// The data file.
        input: Input,
        /// The copy with names; `None` to change the data file.
        output: Option<PathBuf>,
        /// Whether it replaces a file that heaptrace has not made.
        force: bool,
        /// Folders of debug files.
        debug_dirs: Vec<PathBuf>,
    },
    /// Show who owns addresses.
    Who(Question),
    /// Print the commands for gdb.
    GdbCommands,
    /// Check the machine.
    Doctor {
        /// Processes to check.
        pids: Vec<u32>,
        /// Files that the user names as allocators.
        allocators: Vec<NamedAllocator>,
    },
    /// Print the functions at offsets of a file.
    Names {
        /// The file.
        file: PathBuf,
        /// Whether types are wanted, and no names.
        types: bool,
    },
    /// List probe locations.
    Placements {
        /// Files of allocators.
        files: Vec<PathBuf>,
    },
}

/// A data file, and the part of it to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The file.
    pub file: PathBuf,
    /// The moment of the run to show; `None` for its end.
    pub at: Option<Moment>,
    /// The moment from which on it is shown; `None` for its beginning.
    pub from: Option<Moment>,
    /// The mark since which is shown what was allocated; `None` for all.
    pub since_mark: Option<WantedMark>,
    /// Filters; a site is shown if all of them match.
    pub filters: Filters,
    /// The languages whose frames are shown.
    pub shown: ShownLanguages,
    /// Whether people get names of functions as compilers have them.
    pub full_names: bool,
    /// Most memory for the content; by default it follows from the length of the file.
    pub max_memory: Option<u64>,
    /// Whether the history of each site is needed.
    pub with_history: bool,
}

/// What selects allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Expressions, all of which must match.
    pub expressions: Vec<Expression>,
    /// Files of named ones.
    pub files: Vec<PathBuf>,
}

/// The source files to show, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedSources {
    /// The files or functions; `None` for those that allocate most.
    pub choice: Option<SourceChoice>,
    /// Where source files are here.
    pub places: Vec<SourcePath>,
}

/// What `heaptrace who` is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The addresses. None: those in the registers of a core file.
    pub asked: Vec<Asked>,
    /// Where to look.
    pub source: Source,
    /// The process; `None` for all, or the one of the core file.
    pub pid: Option<u32>,
    /// Whether the memory of blocks is looked at for their classes.
    pub inspect_live: bool,
    /// The format of the answer.
    pub format: Format,
    /// How much is shown.
    pub ranking: Ranking,
    /// The functions that are not shown as the ones that allocate.
    pub wrappers: Wrappers,
    /// Whether people get names of functions as compilers have them.
    pub full_names: bool,
}

/// Where the owners of addresses are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a data file.
    File {
        /// The data file.
        input: Input,
        /// A core file of a process in it.
        core: Option<PathBuf>,
    },
    /// In a running process, from now on.
    Process {
        /// For how long; `None`: until an answer is found.
        duration: Option<Duration>,
    },
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

/// The form of a memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapFormat {
    /// Text for people.
    Text,
    /// A picture.
    Svg,
    /// JSON for programs.
    Json,
}

/// What is shown of a memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapOptions {
    /// The process, if only one is wanted.
    pub pid: Option<u32>,
    /// How many sites to show, if the user set a number.
    pub top: Option<usize>,
    /// Whether each site has its stack.
    pub details: bool,
    /// The form.
    pub format: MapFormat,
    /// What the colors of a picture show.
    pub color: MapColor,
}

/// When to use colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` or `TERM=dumb` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Whether to use colors on this stream.
    pub(super) fn for_stream(self, stream: &impl IsTerminal) -> bool {
        let unwanted = |name: &str, value: Option<&str>| {
            std::env::var_os(name).is_some_and(|is| match value {
                Some(value) => is == *value,
                None => !is.is_empty(),
            })
        };
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                stream.is_terminal()
                    && !unwanted("NO_COLOR", None)
                    && !unwanted("TERM", Some("dumb"))
            }
        }
    }
}

impl Action {
    /// Whether it needs the rights for tracing, or checks them.
    pub(super) fn traces(&self) -> bool {
        match self {
            Self::Live { .. } | Self::Record { .. } | Self::Doctor { .. } => true,
            Self::Who(question) => matches!(question.source, Source::Process { .. }),
            _ => false,
        }
    }
}

/// How an output is grouped and ranked, and how much of it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// The key that groups sites, if any.
    pub by: Option<Label>,
    /// The metric that ranks, if the user chose one.
    pub metric: Option<Metric>,
    /// How many to show, if the user set a number.
    pub top: Option<usize>,
    /// Whether a text has everything that was recorded.
    pub details: bool,
    /// Whether a text has histograms of each site.
    pub histogram: bool,
}

impl Ranking {
    /// The metric for a profile.
    pub(super) fn metric(&self, profile: &Profile) -> Metric {
        self.metric.unwrap_or_else(|| Metric::usual(profile))
    }

    /// The grouping of a profile, if a key is set.
    pub(super) fn grouping(&self, profile: &Profile) -> Option<Grouping> {
        self.by.map(|by| Grouping {
            by,
            metric: self.metric(profile),
            cumulative: true,
            top: self.top,
        })
    }
}
