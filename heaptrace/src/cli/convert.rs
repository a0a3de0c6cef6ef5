//! `heaptrace flamegraph` and `heaptrace pprof`: convert a data file to a file for another program.
//!
//! Part of the command line. Must not know the formats: the output stage does.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use super::destination::Output;
use super::invocation::{Input, Ranking};
use super::{input, message};
use crate::output::{Format, Grouping, Label, Metric};

/// Draws a data file as a flame graph.
pub(super) fn flamegraph(
    input: &Input,
    output: &Path,
    metric: Metric,
    by: Option<Label>,
) -> anyhow::Result<ExitCode> {
    let ranking = Ranking {
        by,
        metric,
        top: None,
    };
    let next = "open it in a browser";
    let format = Format::Flamegraph(metric);
    convert(input, output, ranking.grouping(), &format, next)
}

/// Converts a data file to a pprof profile.
pub(super) fn pprof(input: &Input, output: &Path) -> anyhow::Result<ExitCode> {
    let next = "show it with: go tool pprof -http=: FILE";
    convert(input, output, None, &Format::Pprof, next)
}

fn convert(
    input: &Input,
    output: &Path,
    grouping: Option<Grouping>,
    format: &Format,
    next: &str,
) -> anyhow::Result<ExitCode> {
    // Checked now: once the process has given up its rights to read the file, it may not ask about a terminal.
    let is_terminal = io::stderr().is_terminal();
    let to = Output::open(output)?;
    let mut loaded = input::load(input, Some(&to))?;
    loaded.grouping = grouping;
    loaded.warn();
    to.write(|out| format.write(&loaded.report_input(), out))?;
    if is_terminal {
        message::wrote(output, next);
    }
    Ok(loaded.exit_code())
}
