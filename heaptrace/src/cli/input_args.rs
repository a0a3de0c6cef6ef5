//! The options of commands that read a data file: which part of it, how it is ranked, what is shown.
//!
//! Part of the command line. Turns clap's types into plain ones. Must not know the commands.

use std::path::PathBuf;

use clap::Args;

use super::choices::{language, mark, metric};
use super::filter_args::Filtering;
use super::moment::{self, Moment};
use super::{invocation, values};
use crate::output::{Label, Metric, ShownLanguages, WantedMark, Wrappers};

#[derive(Debug, Args)]
pub(super) struct Input {
    /// The data file to read
    #[arg(value_name = "FILE", default_value = "heaptrace.data")]
    file: PathBuf,
    /// Show the run as it was at this time after its beginning, e.g. 90s or 2h [default: at its end].
    ///
    /// The snapshot that is nearest to that time is used. `heaptrace report --snapshots` lists the snapshots. A negative time, as -30s, is
    /// before the end; 14:30 or 14:30:05 is a time of day.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::parse)]
    at: Option<Moment>,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    pub(super) filtering: Filtering,
    /// Show only what was allocated since this mark, by its number, or since the last one (last).
    ///
    /// Marks are made by --mark-every, SIGUSR2 or the key m of the table while the run is traced; `heaptrace leaks` lists them. Peaks are
    /// not known then.
    #[arg(long, value_name = "MARK", conflicts_with_all = ["from", "to"], value_parser = mark)]
    since_mark: Option<WantedMark>,
    /// Most memory for the content of the file [default: 256MiB, and 256 bytes for each byte of the file].
    ///
    /// If a file needs more, reading ends there. The limit guards against files that were made to use up the
    /// memory.
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    max_memory: Option<u64>,
    #[command(flatten)]
    languages: Languages,
}

/// A part of a run.
#[derive(Debug, Args)]
pub(super) struct Range {
    /// Show only what happened from this moment on, written as for --at [default: the beginning of the run].
    ///
    /// What was allocated and freed counts if that was in this time. Live is what was live at its end, also what is older, and the peak is
    /// that of this time. The time begins and ends at the nearest snapshots; the output names them. `heaptrace leaks` looks for growth in
    /// this time [default there: the run without its first quarter, in which programs fill their tables].
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "at", value_parser = moment::parse)]
    from: Option<Moment>,
    /// Show only what happened until this moment [default: the end of the run]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "at", value_parser = moment::parse)]
    to: Option<Moment>,
}

#[derive(Debug, Args)]
pub(super) struct Ranking {
    /// The number to rank by [default: live-bytes; left-bytes once all processes have ended]
    #[arg(long, value_name = "METRIC", value_parser = metric())]
    metric: Option<Metric>,
    /// Number of stacks or groups to show [default: 10; all of them in json]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
}

#[derive(Debug, Args)]
pub(super) struct Languages {
    /// Show only frames of these languages: native (machine code), python, javascript, java, jit (generated code) [default: all].
    ///
    /// Several are separated by commas. Every allocation stays counted: a stack without such frames becomes one frame, e.g.
    /// `[native]`. By default, functions of Python and JavaScript are shown where the interpreter runs them, in place of the
    /// interpreter's own loop (_PyEval_EvalFrameDefault, Builtins_InterpreterEntryTrampoline), and Java methods in place of generated
    /// code. To select allocations, use --filter language=python.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = language)]
    language: Vec<ShownLanguages>,
    /// Show machine code alone, also the interpreter's loop, as a debugger does: short for --language native
    #[arg(long, conflicts_with = "language")]
    native: bool,
}

impl From<Languages> for ShownLanguages {
    fn from(languages: Languages) -> Self {
        if languages.native {
            return Self::NATIVE;
        }
        let named = languages.language.into_iter();
        named.reduce(Self::and).unwrap_or_default()
    }
}

#[derive(Debug, Args)]
pub(super) struct Naming {
    /// Show names of functions as compilers have them, in full.
    ///
    /// Without it, names leave out template arguments that are defaults of a library (allocators, hashes, comparisons), namespaces and
    /// tags of versions, and inner arguments of long names, and std::basic_string<char> is std::string. Functions are different ones if
    /// their full names differ. A filter matches either form. JSON and pprof always have full names.
    #[arg(long)]
    pub(super) full_names: bool,
}

#[derive(Debug, Args)]
pub(super) struct Wrapping {
    /// Pass over functions that match this, as over allocator wrappers, e.g. 'pool_*'.
    ///
    /// A stack is shown and counted under its innermost function that is no allocator wrapper and no part of a
    /// language's library: operator new, std::, alloc::, xmalloc, g_malloc, zmalloc, sds, _PyObject_Malloc and
    /// many more. An interpreter's code allocates for the function that it runs, and an `import` for the
    /// module that has it. This option adds to that list. GLOB must match the whole name of a function, with or
    /// without its types. May be given several times.
    #[arg(long, value_name = "GLOB")]
    wrapper: Vec<String>,
    /// Pass over no function: show stacks from their innermost frame, and count them under it
    #[arg(long)]
    full_stacks: bool,
}

impl From<Wrapping> for Wrappers {
    fn from(wrapping: Wrapping) -> Self {
        if wrapping.full_stacks {
            Self::shown()
        } else {
            Self::with(&wrapping.wrapper)
        }
    }
}

/// A file to write.
#[derive(Debug, Args)]
pub(super) struct Written {
    /// Replace FILE also if heaptrace has not made it.
    ///
    /// Without it, a file that exists is replaced only if heaptrace made it, or if its name begins with `heaptrace.`.
    #[arg(long)]
    pub(super) force: bool,
}

impl From<Input> for invocation::Input {
    fn from(input: Input) -> Self {
        Self {
            file: input.file,
            at: input.at.or(input.range.to),
            from: input.range.from,
            since_mark: input.since_mark,
            filters: input.filtering.into(),
            shown: input.languages.into(),
            full_names: false,
            max_memory: input.max_memory,
            with_history: false,
        }
    }
}

impl Input {
    /// Whether only what was allocated since a mark is shown.
    pub(super) fn has_mark(&self) -> bool {
        self.since_mark.is_some()
    }

    pub(super) fn of(self, naming: &Naming) -> invocation::Input {
        invocation::Input {
            full_names: naming.full_names,
            ..self.into()
        }
    }
}

impl Ranking {
    /// Whether it is by what was live at a peak.
    pub(super) fn is_of_peak(&self) -> bool {
        self.metric == Some(Metric::PeakBytes)
    }

    pub(super) fn of(&self, by: Option<Label>) -> invocation::Ranking {
        invocation::Ranking {
            by,
            metric: self.metric,
            top: self.top.map(|top| top as usize),
            details: false,
            histogram: false,
        }
    }
}
