//! `heaptrace flamegraph` and `heaptrace pprof`: convert a data file to a file for another program.
//!
//! Part of the command line. Must not know the formats: the output stage does.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use super::destination::Output;
use super::invocation::{Input, Ranking};
use super::{input, message};
use crate::output::{self, Format, Grouping, Label, Metric, ReportInput};
use crate::profile::Profile;

/// Draws a data file as a flame graph.
pub(super) fn flamegraph(
    input: &Input,
    output: &Path,
    metric: Option<Metric>,
    by: Option<Label>,
) -> anyhow::Result<ExitCode> {
    let ranking = Ranking {
        by,
        metric,
        top: None,
        details: false,
    };
    let next = "open it in a browser";
    let wanted = |profile: &Profile| metric.unwrap_or_else(|| Metric::unfreed(profile));
    let choose = |profile: &Profile| {
        let format = Format::Flamegraph(wanted(profile));
        (ranking.grouping(profile), format)
    };
    convert(input, output, next, choose, |input| {
        let metric = wanted(input.profile);
        let drawn = output::drawn_metric(input, metric).filter(|drawn| *drawn != metric);
        if let Some(drawn) = drawn {
            let why = output::why_not_drawn(metric, drawn);
            message::note(format_args!("{why}, so {} are drawn", drawn.title()));
        }
    })
}

/// Converts a data file to a pprof profile.
pub(super) fn pprof(input: &Input, output: &Path) -> anyhow::Result<ExitCode> {
    let next = "show it with: go tool pprof -http=: FILE";
    convert(input, output, next, |_| (None, Format::Pprof), |_| ())
}

fn convert(
    input: &Input,
    output: &Path,
    next: &str,
    choose: impl FnOnce(&Profile) -> (Option<Grouping>, Format),
    note: impl FnOnce(&ReportInput<'_>),
) -> anyhow::Result<ExitCode> {
    // Checked now: once the process has given up its rights to read the file, it may not ask about a terminal.
    let is_terminal = io::stderr().is_terminal();
    let to = Output::open(output)?;
    let mut loaded = input::load(input, Some(&to))?;
    let (grouping, format) = choose(&loaded.profile);
    loaded.grouping = grouping;
    loaded.warn();
    let input = loaded.report_input();
    note(&input);
    to.write(|out| format.write(&input, out))?;
    if is_terminal {
        message::wrote(output, next);
    }
    Ok(loaded.exit_code())
}
