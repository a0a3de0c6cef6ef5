//! `heaptrace flamegraph`, `heaptrace pprof` and `heaptrace export`: convert a data file to a file for another program.
//!
//! Part of the command line. Must not know the formats: the output stage does.

use std::path::PathBuf;
use std::process::ExitCode;

use super::destination::{Output, To};
use super::invocation::{Input, Ranking};
use super::{input, message};
use crate::output::{self, Export, ExportFormat, Format, Grouping, Label, Metric, ReportInput};
use crate::profile::Profile;

/// Draws a data file as a flame graph.
pub(super) fn flamegraph(
    input: &Input,
    to: &To<'_>,
    metric: Option<Metric>,
    by: Option<Label>,
    types: bool,
) -> anyhow::Result<ExitCode> {
    let ranking = Ranking {
        by,
        metric,
        top: None,
        details: false,
        histogram: false,
    };
    let next = "open it in a browser";
    let wanted = |profile: &Profile| metric.unwrap_or_else(|| Metric::unfreed(profile));
    let choose = |profile: &Profile| {
        let format = Format::Flamegraph(wanted(profile));
        (ranking.grouping(profile), format)
    };
    convert(input, to, next, metric, choose, types, |input| {
        let metric = wanted(input.profile);
        let drawn = output::drawn_metric(input, metric).filter(|drawn| *drawn != metric);
        if let Some(drawn) = drawn {
            let why = output::why_not_drawn(metric, drawn);
            message::note(format_args!("{why}, so {} are drawn", drawn.title()));
        }
    })
}

/// Converts a data file to a file of another program.
pub(super) fn export(
    input: &Input,
    output: Option<PathBuf>,
    force: bool,
    format: ExportFormat,
    metric: Option<Metric>,
) -> anyhow::Result<ExitCode> {
    let output = output.unwrap_or_else(|| format.file_name().into());
    let to = To::new(&output, force);
    let choose = |profile: &Profile| {
        let export = Export {
            format,
            metric: metric.unwrap_or_else(|| Metric::usual(profile)),
            is_compressed: output.extension().is_some_and(|it| it == "gz"),
        };
        (None, Format::Export(export))
    };
    convert(input, &to, next(format), metric, choose, false, |_| ())
}

/// What to do with a file.
fn next(format: ExportFormat) -> &'static str {
    match format {
        ExportFormat::Folded => "draw it with: inferno-flamegraph FILE",
        ExportFormat::HeapText => "show it with: google-pprof --text PROGRAM FILE",
        ExportFormat::Jeheap => "show it with: jeprof --text PROGRAM FILE",
        ExportFormat::Speedscope => "open it on www.speedscope.app, or with: speedscope FILE",
        ExportFormat::Firefox => "open it on profiler.firefox.com",
        ExportFormat::Heaptrack => "show it with: heaptrack_gui FILE",
        ExportFormat::Json => "look into it with: jq .totals FILE",
        ExportFormat::Csv => "open it in a spreadsheet",
    }
}

/// Converts a data file to a pprof profile.
pub(super) fn pprof(input: &Input, to: &To<'_>) -> anyhow::Result<ExitCode> {
    let next = "show it with: go tool pprof -http=: FILE";
    let choose = |_: &Profile| (None, Format::Pprof);
    convert(input, to, next, None, choose, false, |_| ())
}

fn convert(
    input: &Input,
    to: &To<'_>,
    next: &str,
    metric: Option<Metric>,
    choose: impl FnOnce(&Profile) -> (Option<Grouping>, Format),
    types: bool,
    note: impl FnOnce(&ReportInput<'_>),
) -> anyhow::Result<ExitCode> {
    let to = Output::open(to)?;
    let mut loaded = input::load(input, Some(&to))?;
    loaded.check(metric)?;
    let (grouping, format) = choose(&loaded.profile);
    loaded.grouping = grouping;
    loaded.with_types = types;
    loaded.warn();
    let input = loaded.report_input();
    note(&input);
    to.write_and_say(next, |out| format.write(&input, out))?;
    Ok(loaded.exit_code())
}
