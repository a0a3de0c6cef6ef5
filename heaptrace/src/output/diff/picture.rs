//! A difference as a flame graph: the width of a frame is its new value, red frames grew, blue ones shrank.
//!
//! Stage: output. Drawn by inferno. Names of traced processes are escaped before it gets them.

use std::io::Write;

use inferno::flamegraph::{self, Options};

use super::rows::{Row, rows};
use super::side::Side;
use crate::output::error::OutputError;
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::text::{self, escape};

/// The limit for the text that inferno reads.
const MOST_TEXT: usize = 256 << 20;

pub(super) fn write(
    old: &Side<'_>,
    new: &Side<'_>,
    metric: Metric,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    // From the user's function on: the innermost frames have the colors, and of `operator new` they would say nothing.
    let rows = rows(old, new, metric, Label::Stack);
    let mut lines = Vec::with_capacity(rows.len());
    let (mut all, mut size) = (0_u128, 0);
    for Row {
        name,
        callers,
        change,
        ..
    } in rows
    {
        let path = callers.iter().rev().chain([&name]);
        let path: Vec<_> = path.map(|name| name.replace(';', ":")).collect();
        let line = format!("{} {} {}", path.join(";"), change.old, change.new);
        size += line.len();
        if size > MOST_TEXT {
            return Err(OutputError::TooMuch);
        }
        lines.push(line);
        all += u128::from(change.new);
    }
    if all == 0 {
        return Err(OutputError::Nothing);
    }
    if i64::try_from(all).is_err() {
        return Err(OutputError::TooLarge);
    }
    lines.sort_unstable();
    let mut options = Options::default();
    options.title = format!(
        "heaptrace: change of {}, {} → {}",
        metric.title(),
        escape(old.name),
        escape(new.name)
    );
    options.subtitle = Some(subtitle(old, new, metric));
    options.count_name = if metric.is_bytes() { "bytes" } else { "blocks" }.to_owned();
    // The SVG is built in memory, so that nothing is written if it can't be drawn.
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    out.write_all(&svg)?;
    Ok(())
}

fn subtitle(old: &Side<'_>, new: &Side<'_>, metric: Metric) -> String {
    let total = |side: &Side<'_>| metric.format(metric.of(&side.input.profile.totals));
    let is_sampled = |side: &Side<'_>| side.input.profile.info.mode.is_sampled();
    let estimates = if is_sampled(old) || is_sampled(new) {
        "; values are estimates, and the text has their errors"
    } else {
        ""
    };
    let duration = text::duration(new.input.profile.duration_ns);
    format!(
        "{} → {}, {duration}; width: new value; red: more, blue: less; what is gone is not drawn{estimates}",
        total(old),
        total(new)
    )
}
