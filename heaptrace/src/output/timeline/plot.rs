//! A timeline in a terminal: a filled curve, its axes, and a small curve of each group.
//!
//! Stage: output. Escapes every name of a traced process.

use std::io::{self, Write};

use super::course::{Highest, Series, Timeline};
use super::options::TimelineOptions;
use super::{axis, name};
use crate::output::metric::Metric;
use crate::output::moments::moments;
use crate::output::report::paragraph;
use crate::output::report_input::ReportInput;
use crate::output::style::Style;
use crate::text::{count, duration, escape};

/// The width in columns if that of the terminal is unknown.
const WIDTH: usize = 100;

/// The rows of the curve.
const ROWS: usize = 10;

/// The columns of the small curve of a group, in a wide and in a narrow terminal.
const SMALL: [usize; 2] = [24, 12];

/// A terminal of so many columns is wide.
const WIDE: usize = 72;

/// Cells that are filled from below, by eighths.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The same without Unicode.
const ASCII: [char; 9] = [' ', '.', '.', ':', ':', '|', '|', '#', '#'];

/// Heights of a small curve without Unicode.
const HEIGHTS: [char; 9] = [' ', '_', '.', '-', '~', '=', '+', '*', '#'];

/// Writes the plot.
pub(super) fn write(
    input: &ReportInput<'_>,
    timeline: &Timeline,
    options: &TimelineOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let style = Style::new(options.color);
    let profile = input.profile;
    let target = format!("heaptrace: {}", escape(&profile.info.target));
    let run = duration(profile.duration_ns);
    writeln!(out, "{} ({}, {run})", style.bold(&target), profile.chosen())?;
    for warning in input.warnings {
        let warning = format!("warning: {}", escape(warning));
        writeln!(out, "{}", style.warning(&warning))?;
    }
    if let Some(only) = input.only() {
        writeln!(out, "{}", style.bold(&only))?;
    }
    let title = title(timeline);
    writeln!(out, "\n{}\n", style.bold(&title))?;
    if timeline.times.len() < 2 || timeline.total.iter().all(|it| it.upper() == 0) {
        return writeln!(
            out,
            "There is nothing to draw: no memory was seen at a snapshot of this time."
        );
    }
    let width = options.width.unwrap_or(WIDTH).clamp(40, 400);
    curve(timeline, options, width, style, out)?;
    writeln!(out)?;
    groups(input, timeline, options, width, style, out)?;
    happened(input, width, style, out)
}

/// What happened by itself in this time.
fn happened(
    input: &ReportInput<'_>,
    width: usize,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    const MOST: usize = 8;
    let all = moments(input);
    for (at, moment) in all.iter().take(MOST).enumerate() {
        if at == 0 {
            writeln!(out)?;
        }
        for line in paragraph::lines("! ", &moment.words, width) {
            writeln!(out, "{}", style.warning(&line))?;
        }
    }
    if all.len() > MOST {
        let rest = count((all.len() - MOST) as u64);
        writeln!(out, "  and {rest} more (--format json)")?;
    }
    Ok(())
}

/// What is shown, and how well it is known.
pub(super) fn title(timeline: &Timeline) -> String {
    let (first, last) = (timeline.times.first(), timeline.times.last());
    let span = last.unwrap_or(&0).saturating_sub(*first.unwrap_or(&0));
    let every = match timeline.snapshots {
        0 => String::new(),
        snapshots => format!(", {} apart", duration(span / snapshots as u64)),
    };
    let mut metric = timeline.metric.title().to_owned();
    if let Some(letter) = metric.get_mut(..1) {
        letter.make_ascii_uppercase();
    }
    format!(
        "{metric} over {} ({} snapshots{every})",
        duration(span),
        count(timeline.snapshots as u64)
    )
}

/// The highest number, and when it was.
pub(super) fn highest(metric: Metric, peak: Highest) -> String {
    let (after, at) = (duration(peak.after_ns), duration(peak.at_ns));
    let when = match after == at {
        true => format!("at {at}"),
        false => format!("between {after} and {at}"),
    };
    format!("highest {} {when}", metric.format(peak.value))
}

/// The column of a time.
fn column(time: u64, times: &[u64], columns: usize) -> usize {
    let (first, last) = (
        times.first().copied().unwrap_or(0),
        times.last().copied().unwrap_or(0),
    );
    let span = last.saturating_sub(first).max(1);
    let after = time.saturating_sub(first).min(span);
    let at = u128::from(after) * columns as u128 / u128::from(span);
    (at as usize).min(columns.saturating_sub(1))
}

/// The highest value in each column. Between two times, the earlier value holds.
fn columns(times: &[u64], values: impl Iterator<Item = (u64, u64)>, columns: usize) -> Vec<u64> {
    let mut found = vec![0; columns];
    let mut next = 0;
    let mut held = 0;
    for (time, (value, most)) in times.iter().zip(values) {
        let at = column(*time, times, columns);
        for cell in found.iter_mut().take(at).skip(next) {
            *cell = held.max(*cell);
        }
        if let Some(cell) = found.get_mut(at) {
            *cell = most.max(*cell);
        }
        (next, held) = ((at + 1).max(next), value);
    }
    found
}

/// Eighths of rows that a value fills. Something is never nothing.
fn eighths(value: u64, top: u64, rows: usize) -> usize {
    let all = rows as u128 * 8;
    let filled = (u128::from(value) * all).div_ceil(u128::from(top.max(1)));
    filled.min(all) as usize
}

fn curve(
    timeline: &Timeline,
    options: &TimelineOptions,
    width: usize,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let total = &timeline.total;
    let upper = total.iter().map(|it| it.upper().max(it.most)).max();
    let ticks = axis::numbers(timeline.metric, upper.unwrap_or(0), 4);
    let top = ticks.last().copied().unwrap_or(1);
    let words: Vec<_> = ticks
        .iter()
        .map(|it| axis::number(timeline.metric, *it))
        .collect();
    let margin = words.iter().map(|it| it.chars().count()).max().unwrap_or(0);
    let room = width.saturating_sub(margin + 5).max(10);
    let values = columns(
        &timeline.times,
        total.iter().map(|it| (it.value, it.most)),
        room,
    );
    let uppers = total.iter().map(|it| (it.upper(), it.upper().max(it.most)));
    let uppers = columns(&timeline.times, uppers, room);
    let (cells, above, corner, side) = match options.unicode {
        true => (BLOCKS, '░', "└", ["┤", "│"]),
        false => (ASCII, '\'', "+", ["+", "|"]),
    };
    if let Some(peak) = timeline.peak {
        let at = column(peak.at_ns, &timeline.times, room);
        let words = highest(timeline.metric, peak);
        let length = words.chars().count() + 1;
        let mark = if options.unicode { "▼" } else { "v" };
        let gap = |columns: usize| " ".repeat(margin + 4 + columns);
        let line = if at >= length {
            format!("{}{words} {mark}", gap(at - length))
        } else if at + length < room {
            format!("{}{mark} {words}", gap(at))
        } else {
            writeln!(out, "{}", style.number(&format!("  {words}")))?;
            format!("{}{mark}", gap(at))
        };
        writeln!(out, "{}", style.number(&line))?;
    }
    for row in (0..ROWS).rev() {
        let mut named = ticks.iter().zip(&words);
        let named = named.find(|it| eighths(*it.0, top, ROWS) / 8 == row + 1);
        let (label, side) = named.map_or(("", side[1]), |it| (it.1.as_str(), side[0]));
        let filled = |value: u64| eighths(value, top, ROWS).saturating_sub(row * 8).min(8);
        let line: String = values
            .iter()
            .zip(&uppers)
            .map(|(value, upper)| match (filled(*value), filled(*upper)) {
                (0, 0) => ' ',
                (0, _) => above,
                (eighths, _) => cells.get(eighths).copied().unwrap_or(' '),
            })
            .collect();
        let line = line.trim_end();
        let mark = style.dim(&format!("  {label:>margin$} {side}"));
        writeln!(out, "{mark}{}", style.number(line))?;
    }
    times(timeline, options, room, margin, (corner, style), out)
}

/// The axis of time.
fn times(
    timeline: &Timeline,
    options: &TimelineOptions,
    room: usize,
    margin: usize,
    (corner, style): (&str, Style),
    out: &mut dyn Write,
) -> io::Result<()> {
    let (from, to) = (timeline.times[0], timeline.times[timeline.times.len() - 1]);
    let ticks = axis::times(from, to, (room / 14).max(2));
    let mut line: Vec<char> = vec![if options.unicode { '─' } else { '-' }; room];
    let mut labels = String::new();
    for tick in &ticks {
        let at = column(*tick, &timeline.times, room);
        let words = axis::time(*tick, &ticks);
        let begin = at
            .saturating_sub(words.len() / 2)
            .min(room.saturating_sub(words.len()));
        if begin > labels.len() || labels.is_empty() {
            if let Some(cell) = line.get_mut(at) {
                *cell = if options.unicode { '┬' } else { '+' };
            }
            labels.push_str(&" ".repeat(begin.saturating_sub(labels.len())));
            labels.push_str(&words);
        }
    }
    let line: String = line.into_iter().collect();
    let gap = " ".repeat(margin + 3);
    let axis = format!("  {:>margin$} {corner}{line}", 0);
    writeln!(out, "{}", style.dim(&axis))?;
    writeln!(out, "{}", style.dim(&format!("{gap} {labels}")))?;
    if timeline.is_sampled {
        let words = match options.unicode {
            true => "░ up to the upper end of the range that holds the true number in 95 % of runs",
            false => {
                "' up to the upper end of the range that holds the true number in 95 % of runs"
            }
        };
        writeln!(out, "{}", style.dim(&format!("  {words}")))?;
    }
    Ok(())
}

fn groups(
    input: &ReportInput<'_>,
    timeline: &Timeline,
    options: &TimelineOptions,
    width: usize,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    if timeline.groups.is_empty() {
        return Ok(());
    }
    let metric = timeline.metric;
    let most = timeline.groups.iter().map(|it| it.most).max().unwrap_or(0);
    let is_error = timeline.is_sampled;
    let columns = SMALL[usize::from(width < WIDE)];
    let head = format!(
        "  {:>10}{}  {:>10}  {:<columns$}  {}",
        "HIGHEST",
        if is_error { "      ERROR" } else { "" },
        "AT END",
        "OVER TIME",
        timeline.by.name().to_uppercase()
    );
    writeln!(out, "{}", style.dim(&head))?;
    let taken = 2 + 10 + 2 + 10 + 2 + columns + 2 + if is_error { 11 } else { 0 };
    let room = width.saturating_sub(taken).max(16);
    for series in &timeline.groups {
        let small = small(timeline, series, most, columns, options);
        let last = series.values.last().copied().unwrap_or_default();
        let highest = series.values.iter().max_by_key(|it| it.value);
        let error = highest.map_or(0, |it| it.error);
        let error = match is_error {
            true => format!("  ±{:>8}", metric.format(error)),
            false => String::new(),
        };
        let error = if options.unicode {
            error
        } else {
            error.replace('±', "+-")
        };
        writeln!(
            out,
            "  {:>10}{error}  {:>10}  {}  {}",
            metric.format(series.most),
            metric.format(last.value),
            style.number(&small),
            name::fitted(input, timeline.by, &series.group, room)
        )?;
    }
    if timeline.all > timeline.groups.len() {
        let rest = timeline.rest.iter().copied().max().unwrap_or(0);
        let others = timeline.all - timeline.groups.len();
        let words = format!(
            "  and {} more, which had at most {} together; --top N shows more of them",
            count(others as u64),
            metric.format(rest)
        );
        writeln!(out, "{}", style.dim(&words))?;
    }
    Ok(())
}

/// The curve of a group, in one row, of the height that the largest group has.
fn small(
    timeline: &Timeline,
    series: &Series,
    most: u64,
    width: usize,
    options: &TimelineOptions,
) -> String {
    let values = series.values.iter().map(|it| (it.value, it.value));
    let cells = if options.unicode { BLOCKS } else { HEIGHTS };
    columns(&timeline.times, values, width)
        .into_iter()
        .map(|value| cells.get(eighths(value, most, 1)).copied().unwrap_or(' '))
        .collect()
}
