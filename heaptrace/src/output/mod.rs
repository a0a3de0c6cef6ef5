//! Stage output: a profile and its symbols, written in the formats that people and programs read.
//!
//! Each format is a pure function from [`ReportInput`] to a writer, in a file of its own.

mod cgroup;
mod filter;
mod flamegraph;
mod folded;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod glob;
mod groups;
mod json;
mod label;
mod metric;
mod pprof;
mod proto;
mod report;
mod report_input;
mod shorten;
mod snapshots;
#[cfg(test)]
mod tests;

use std::io::{self, BufWriter, Write};

use thiserror::Error;

pub use filter::{Filter, select};
pub use groups::{Group, Grouping, groups};
pub use label::Label;
pub use metric::Metric;
pub use report::{ReportOptions, write_summary};
pub use report_input::ReportInput;
pub(crate) use shorten::function as shorten_function;
pub use snapshots::{write_snapshots, write_snapshots_json};

/// A format, with what it can be asked for.
#[derive(Clone, Debug)]
pub enum Format {
    /// The report for people.
    Text(ReportOptions),
    /// The report for programs.
    Json,
    /// A flame graph, as SVG.
    Flamegraph(Metric),
    /// A gzipped profile.proto.
    Pprof,
}

impl Format {
    /// Writes findings in this format.
    pub fn write(
        &self,
        findings: &ReportInput<'_>,
        out: &mut dyn Write,
    ) -> Result<(), OutputError> {
        // All of them write in small pieces.
        let mut out = BufWriter::new(out);
        match self {
            Self::Text(options) => report::write(findings, options, &mut out),
            Self::Json => json::write(findings, &mut out),
            Self::Flamegraph(metric) => flamegraph::write(findings, *metric, &mut out),
            Self::Pprof => pprof::write(findings, &mut out),
        }?;
        out.flush()?;
        Ok(())
    }
}

/// Why findings can't be written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The writer failed, by a closed pipe or a full disk.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is nothing of that.
    #[error("nothing to draw: this profile has no {what}; choose another --metric")]
    Nothing {
        /// What there is nothing of.
        what: &'static str,
    },
    /// The sum of what is to be drawn is beyond 64 bits.
    #[error("can't draw this: its numbers are too large to be true, so the file is damaged")]
    TooLarge,
    /// Its stacks have more text than a drawing can have.
    #[error("can't draw this: its stacks are too long; draw a part of it by --filter")]
    TooMuch,
}
