//! `heaptrace flamegraph` and `heaptrace pprof`: a data file, turned into a file for another program.
//!
//! Part of the command line, no stage of the flow. How each looks is the output stage's business.

use std::path::Path;
use std::process::ExitCode;

use super::destination::Output;
use super::input::{self, Loaded};
use super::{Input, Ranking, message};
use crate::output::{Format, Label, Metric};

/// Draws a data file.
pub(super) fn flamegraph(
    input: &Input,
    output: &Path,
    metric: Metric,
    by: Option<Label>,
) -> anyhow::Result<ExitCode> {
    let to = Output::open(output)?;
    let mut loaded = input::load(input)?;
    let ranking = Ranking {
        by,
        metric,
        top: None,
    };
    loaded.grouping = ranking.grouping();
    convert(&loaded, &to, &Format::Flamegraph(metric))?;
    message::wrote(output, "open it in a browser");
    Ok(loaded.exit_code())
}

/// Converts a data file to a profile.
pub(super) fn pprof(input: &Input, output: &Path) -> anyhow::Result<ExitCode> {
    let to = Output::open(output)?;
    let loaded = input::load(input)?;
    convert(&loaded, &to, &Format::Pprof)?;
    message::wrote(output, "look at it with: go tool pprof -http=: FILE");
    Ok(loaded.exit_code())
}

fn convert(loaded: &Loaded, to: &Output, format: &Format) -> anyhow::Result<()> {
    loaded.warn();
    to.write(|out| format.write(&loaded.findings(), out))
}
