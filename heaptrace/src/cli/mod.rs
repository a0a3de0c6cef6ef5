//! The command line: from words to a plain configuration, and from there to the stages.
//!
//! No stage of the flow; it may use them all, and none uses it.

mod args;
mod parse;
mod values;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::RunConfig;
use crate::output::Metric;

pub use parse::{Stop, parse};

/// A command line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// What to do.
    pub action: Action,
    /// How often `-v` was given.
    pub verbosity: u8,
    /// Whether to use colors.
    pub color: Color,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Trace and show.
    Live {
        /// The run.
        run: RunConfig,
        /// What to rank by.
        metric: Metric,
        /// How many stacks to show, where the user said so.
        top: Option<usize>,
    },
    /// Trace and write a data file.
    Record {
        /// The run.
        run: RunConfig,
        /// The data file.
        output: PathBuf,
    },
    /// Show a data file.
    Report {
        /// The data file.
        input: PathBuf,
        /// For people or for programs.
        format: Format,
        /// What to rank by.
        metric: Metric,
        /// How many stacks to show, where the user said so.
        top: Option<usize>,
    },
    /// Draw a data file.
    Flamegraph {
        /// The data file.
        input: PathBuf,
        /// The SVG file.
        output: PathBuf,
        /// What widths stand for.
        metric: Metric,
    },
    /// Convert a data file.
    Pprof {
        /// The data file.
        input: PathBuf,
        /// The profile.
        output: PathBuf,
    },
    /// Look at the machine.
    Doctor,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Whether to use colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// On a terminal, unless the user's environment says no.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// Does it.
pub fn run(_invocation: Invocation) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not wired yet")
}
