//! The head of the live table: what is traced, how much is live, what share of the memory that is, and warnings.
//!
//! Stage: view. Must not know the rows.

use super::line::{Line, Tone};
use super::names::shortened;
use super::words::{fitted, number};
use crate::join::{Kind, Process};
use crate::output::{Filter, Intervals, Metric, ReportInput};
use crate::profile::Profile;
use crate::text;

/// The lines of the head, without those that would be empty.
pub(super) fn lines(input: &ReportInput<'_>, width: Option<usize>) -> Vec<Line> {
    let mut lines = vec![
        Line::new(Tone::Strong, title(input)),
        Line::from(totals(input, width)),
    ];
    if let Some(only) = input.only_matching() {
        let only = width.map_or_else(|| only.clone(), |width| shortened(&only, width));
        lines.push(Line::new(Tone::Strong, only));
    }
    if let Some(mark) = input.since {
        let since = input.profile.duration_ns.saturating_sub(mark.at_ns);
        let words = format!(
            "only what was allocated since mark {}, {} ago",
            mark.number,
            text::duration(since)
        );
        lines.push(Line::new(Tone::Strong, words));
    }
    // A part of a process can't be compared with the whole.
    if input.since.is_none() && !input.filters.iter().any(Filter::selects_sites) {
        lines.extend(memory(input, width).into_iter().map(Line::from));
    }
    if input.since.is_none()
        && let Some([first, second]) = input.about_mapped()
    {
        let both = in_one_or_two(format!("mapped: {first}"), " ", second.to_owned(), width);
        lines.extend(both.into_iter().map(Line::from));
    }
    let warnings = [lost(input), unprobed(input), paused(input)];
    let warnings = warnings.into_iter().flatten();
    let warnings = warnings.chain(input.warnings.iter().cloned());
    lines.extend(warnings.map(|words| Line::new(Tone::Warning, words)));
    lines
}

fn title(input: &ReportInput<'_>) -> String {
    let profile = input.profile;
    let info = &profile.info;
    let processes = || profile.processes.iter().filter(|it| !it.is_vacant());
    let running = processes().filter(|it| !it.ended).count();
    let ended = processes().filter(|it| it.ended);
    let ended: u64 = ended.map(|it| it.merged.max(1)).sum();
    // The target comes last, so that a long command does not hide the rest.
    format!(
        "heaptrace, {}, {}, {}{}: {}",
        text::duration(profile.duration_ns),
        profile.chosen(),
        text::counted(running as u64, "process", "processes"),
        match ended {
            0 => String::new(),
            n => format!(", {} ended", text::count(n)),
        },
        text::escape(&info.target)
    )
}

fn totals(input: &ReportInput<'_>, width: Option<usize>) -> String {
    let totals = &input.profile.totals;
    let intervals = Intervals::of(input.profile);
    let of = |metric| number(metric, totals, &intervals);
    let is_exact = intervals.around(Metric::LiveAllocations, totals).is_none();
    let blocks = |count| match is_exact {
        true => format!(" in {} blocks", text::count(count)),
        // A sample of bytes says little of the number of blocks.
        false => String::new(),
    };
    let left = match totals.left_bytes {
        0 => String::new(),
        _ => format!("left by ended processes {}", of(Metric::LeftBytes)),
    };
    fitted(
        &[
            format!(
                "live {}{}",
                of(Metric::LiveBytes),
                blocks(totals.live_allocations)
            ),
            // When most of what was allocated since a mark was live is not known.
            match input.since {
                None => format!("peak {}", of(Metric::PeakBytes)),
                Some(_) => String::new(),
            },
            left,
            format!(
                "total {}{}",
                of(Metric::TotalBytes),
                blocks(totals.allocations)
            ),
        ],
        width,
    )
}

/// How much of the resident memory of the running processes is explained, in one line or two; none if that is not known.
fn memory(input: &ReportInput<'_>, width: Option<usize>) -> Vec<String> {
    let resident = input.resident();
    if resident == 0 {
        return Vec::new();
    }
    let intervals = Intervals::of(input.profile);
    let [heap, mapped] = [Kind::Heap, Kind::Mapped].map(|kind| input.of_kind(kind));
    let live = Metric::LiveBytes;
    let explained = heap.live_bytes.saturating_add(mapped.live_bytes);
    let known = format!(
        "heap {} + mapped {} of {} resident",
        number(live, &heap, &intervals),
        text::bytes(mapped.live_bytes),
        text::bytes(resident)
    );
    let running = input.profile.processes.iter().filter(|it| !it.ended);
    let before = running.fold(0_u64, |sum, it| {
        sum.saturating_add(it.memory.resident_before.min(it.memory.resident))
    });
    let rest = match resident.checked_sub(explained) {
        Some(rest) => {
            // What was there before may be gone, and something else explained instead.
            let reasons = match before.min(rest) {
                0 => "files, stacks, the allocator's own".to_owned(),
                before => format!(
                    "files, stacks, up to {} from before tracing: {}",
                    text::bytes(before),
                    text::share(before, resident)
                ),
            };
            format!("not explained: {} ({reasons})", text::bytes(rest))
        }
        None => "not all of it touched".to_owned(),
    };
    in_one_or_two(known, ", ", rest, width)
}

/// Two parts in one line, or in two if one is too narrow.
fn in_one_or_two(
    first: String,
    between: &str,
    second: String,
    width: Option<usize>,
) -> Vec<String> {
    let line = format!("{first}{between}{second}");
    match width {
        Some(width) if line.chars().count() > width => vec![first, second],
        _ => vec![line],
    }
}

fn lost(input: &ReportInput<'_>) -> Option<String> {
    let lost = input.profile.quality.lost.iter();
    let lost = lost.filter(|&(_, &count)| count > 0);
    let words: Vec<_> = lost
        .map(|(reason, &count)| format!("{} {}", text::count(count), text::escape(reason)))
        .collect();
    (!words.is_empty()).then(|| format!("lost: {}", words.join(", ")))
}

fn unprobed(input: &ReportInput<'_>) -> Option<String> {
    let all = &input.profile.quality.unprobed;
    let first = text::escape(all.first()?).into_owned();
    Some(match all.len() {
        1 => format!("not probed: {first}"),
        n => format!(
            "not probed: {} files, such as {first}",
            text::count(n as u64)
        ),
    })
}

/// The memory that running processes may have freed while they were paused.
pub(super) fn uncertain_bytes(profile: &Profile) -> u64 {
    let running = profile.processes.iter().filter(|it| !it.ended);
    running.fold(0, |sum, it| sum.saturating_add(it.totals.uncertain_bytes))
}

/// The processes that are paused at times, with the share of time in which they are probed, and the memory that may still
/// be theirs.
fn paused(input: &ReportInput<'_>) -> Option<String> {
    let profile = input.profile;
    let is_paused = |it: &&Process| it.duty_cycle.is_some() && !it.ended;
    let paused: Vec<&Process> = profile.processes.iter().filter(is_paused).collect();
    let more = match uncertain_bytes(profile) {
        0 => String::new(),
        bytes => format!("; perhaps {} more are live", text::bytes(bytes)),
    };
    let time = |process: &Process| {
        let duty_cycle = process.duty_cycle.unwrap_or_default();
        let since = profile.duration_ns.saturating_sub(duty_cycle.from_ns);
        (since.saturating_sub(duty_cycle.unprobed_ns), since)
    };
    let [all, probed] = paused
        .iter()
        .map(|it| time(it))
        .fold([0_u64; 2], |[all, probed], (one, since)| {
            [all.saturating_add(since), probed.saturating_add(one)]
        });
    let share = text::share(probed, all);
    match paused.as_slice() {
        [] => None,
        [one] => Some(format!(
            "{} is paused at times, for its cost: probed {share} of the time{more}",
            text::escape(&one.command)
        )),
        many => Some(format!(
            "{} processes are paused at times, for their cost: probed {share} of the time{more}",
            many.len()
        )),
    }
}
