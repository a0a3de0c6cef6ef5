//! `heaptrace timeline`: shows the memory of a run over time.
//!
//! Part of the command line. Must not know how it is found or looks: the output stage does.

use std::process::ExitCode;

use super::destination::{Output, To};
use super::input;
use super::invocation::{Color, Input, Ranking};
use super::report::Screen;
use crate::output::{self, Label, Metric, TimelineFormat, TimelineOptions, Wrappers};

/// Most times of a timeline. More would be narrower than the columns of a terminal, or than what can be seen in a picture.
const MOST_TIMES: usize = 240;

/// The groups that are followed if the user did not say how many.
const GROUPS: usize = 8;

pub(super) fn run(
    input: &Input,
    ranking: Ranking,
    wrappers: Wrappers,
    format: TimelineFormat,
    to: &To<'_>,
    color: Color,
) -> anyhow::Result<ExitCode> {
    let to = Output::open(to)?;
    let screen = Screen::of(&to, color);
    let options = TimelineOptions {
        color: screen.color,
        unicode: has_unicode(),
        width: screen.width,
    };
    let mut loaded = input::load_with_periods(input, MOST_TIMES, Some(&to))?;
    loaded.wrappers = wrappers;
    // A plot begins with the warnings, so on a terminal they would be shown twice.
    if format != TimelineFormat::Text || !screen.is_terminal {
        loaded.warn();
    }
    let report_input = loaded.report_input();
    let timeline = output::timeline(
        &report_input,
        &loaded.history,
        &loaded.snapshots,
        ranking.metric.unwrap_or(Metric::LiveBytes),
        ranking.by.unwrap_or(Label::Stack),
        ranking.top.unwrap_or(GROUPS),
    );
    let next = match format {
        TimelineFormat::Svg => "open it in a browser",
        TimelineFormat::Csv => "open it in a spreadsheet",
        TimelineFormat::Json => "look into it with: jq .peak FILE",
        TimelineFormat::Text => "show it with: less FILE",
    };
    to.write_and_say(next, |out| {
        output::write_timeline(&report_input, &timeline, format, &options, out)
    })?;
    Ok(loaded.exit_code())
}

/// Whether the locale's characters are those of Unicode.
fn has_unicode() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let mut values = names.into_iter().filter_map(std::env::var_os);
    let locale = values.find(|it| !it.is_empty()).unwrap_or_default();
    let locale = locale.to_string_lossy().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
