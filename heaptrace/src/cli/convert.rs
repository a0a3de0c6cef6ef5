//! `heaptrace flamegraph` and `heaptrace pprof`: a data file, turned into a file for another program.
//!
//! Part of the command line, no stage of the flow. How each looks is the output stage's business.

use std::path::Path;
use std::process::ExitCode;

use super::{destination, input, message};
use crate::output::{Format, Metric};

/// Draws a data file.
pub(super) fn flamegraph(file: &Path, output: &Path, metric: Metric) -> anyhow::Result<ExitCode> {
    convert(file, output, &Format::Flamegraph(metric))?;
    message::wrote(output, "open it in a browser");
    Ok(ExitCode::SUCCESS)
}

/// Converts a data file to a profile.
pub(super) fn pprof(file: &Path, output: &Path) -> anyhow::Result<ExitCode> {
    convert(file, output, &Format::Pprof)?;
    message::wrote(output, "look at it with: go tool pprof -http=: FILE");
    Ok(ExitCode::SUCCESS)
}

fn convert(file: &Path, output: &Path, format: &Format) -> anyhow::Result<()> {
    let loaded = input::load(file)?;
    loaded.warn();
    destination::write_to(output, |out| format.write(&loaded.findings(), out))
}
