//! The options of `heaptrace diff`.
//!
//! Part of the command line. Turns clap's types into plain ones.

use std::path::PathBuf;

use clap::Args;

use super::choices::{by, diff_format, mark};
use super::filter_args::Filtering;
use super::input_args::{Languages, Ranking, Wrapping, Written};
use super::invocation::{Action, Filters, Input};
use super::moment::{self, Moment};
use super::values;
use crate::output::{DiffFormat, Label, WantedMark, Wrappers};

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// The data file to compare with
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The data file that is compared; the same one to compare two moments of a run
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Show OLD as it was at this time after its beginning, e.g. 90s or 2h, or -30s for a time before its end, or at 14:30 [default: at its end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::parse)]
    old_at: Option<Moment>,
    /// Show NEW as it was at this time after its beginning [default: at its end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::parse)]
    new_at: Option<Moment>,
    /// Compare only what was allocated since this mark of each file, by its number, or since the last one (last).
    ///
    /// So two runs are compared from where both were warm. `heaptrace leaks` lists the marks of a file. Peaks are not known then.
    #[arg(long, value_name = "MARK", value_parser = mark)]
    since_mark: Option<WantedMark>,
    #[command(flatten)]
    pub(super) filtering: Filtering,
    #[command(flatten)]
    ranking: Ranking,
    /// What is compared [default: stack].
    ///
    /// KEY is stack, function, line, module, language, kind, thread, process, pid, cgroup, container, unit, type or element. Stacks are the same if
    /// the names of their functions are, from the user's function on, in whichever process.
    #[arg(long, value_name = "KEY", default_value = "stack", value_parser = by(&Label::ALL))]
    by: Label,
    #[command(flatten)]
    wrapping: Wrapping,
    #[command(flatten)]
    languages: Languages,
    /// Output format: text for people, json for programs, flamegraph for an SVG with red and blue frames
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = diff_format())]
    format: DiffFormat,
    /// The file to write; - for standard output [default: -; heaptrace.diff.svg for flamegraph]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    written: Written,
    /// Most memory for the content of each file [default: 256MiB, and 256 bytes for each byte of the file]
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    max_memory: Option<u64>,
}

impl Diff {
    /// Whether what is compared is not known: peaks of what was allocated since a mark.
    pub(super) fn lacks_peaks(&self) -> bool {
        self.since_mark.is_some() && self.ranking.is_of_peak()
    }
}

impl From<Diff> for Action {
    fn from(diff: Diff) -> Self {
        let shown = diff.languages.into();
        let filters: Filters = diff.filtering.into();
        let input = |file, at| Input {
            file,
            at,
            from: None,
            since_mark: diff.since_mark,
            filters: filters.clone(),
            shown,
            full_names: true,
            max_memory: diff.max_memory,
            with_history: false,
        };
        let usual = match diff.format {
            DiffFormat::Text | DiffFormat::Json => "-",
            DiffFormat::Flamegraph => "heaptrace.diff.svg",
        };
        let wrappers: Wrappers = diff.wrapping.into();
        Self::Diff {
            old: input(diff.old.clone(), diff.old_at),
            new: input(diff.new.clone(), diff.new_at),
            ranking: diff.ranking.of(Some(diff.by)),
            wrappers,
            format: diff.format,
            output: diff.output.unwrap_or_else(|| usual.into()),
            force: diff.written.force,
        }
    }
}
