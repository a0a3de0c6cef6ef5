//! `heaptrace flamegraph` and `heaptrace pprof`: a data file, turned into a file for another program.
//!
//! Part of the command line, no stage of the flow. How each looks is the output stage's business.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use super::destination::Output;
use super::input;
use super::{Input, Ranking, message};
use crate::output::{Format, Grouping, Label, Metric};

/// Draws a data file.
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

/// Converts a data file to a profile.
pub(super) fn pprof(input: &Input, output: &Path) -> anyhow::Result<ExitCode> {
    let next = "look at it with: go tool pprof -http=: FILE";
    convert(input, output, None, &Format::Pprof, next)
}

fn convert(
    input: &Input,
    output: &Path,
    grouping: Option<Grouping>,
    format: &Format,
    next: &str,
) -> anyhow::Result<ExitCode> {
    // Asked now: once it reads, this process may ask a terminal nothing.
    let is_told = io::stderr().is_terminal();
    let to = Output::open(output)?;
    let mut loaded = input::load(input, Some(&to))?;
    loaded.grouping = grouping;
    loaded.warn();
    to.write(|out| format.write(&loaded.findings(), out))?;
    if is_told {
        message::wrote(output, next);
    }
    Ok(loaded.exit_code())
}
