//! The rows of the live table that name suspects: sites whose memory grows.
//!
//! Stage: view. Must not know how growth is found.

use super::line::{Line, Tone};
use super::names::joined;
use crate::output::{Growth, Leaks, ReportInput};
use crate::text;

/// The largest number of functions of a stack in one line.
const FUNCTIONS: usize = 3;

/// A terminal that is less wide has no column for blocks.
const WIDE: usize = 110;

/// The heading and the rows, surest first, at most so many.
pub(super) fn lines(
    input: &ReportInput<'_>,
    leaks: Option<&Leaks>,
    most: usize,
    width: Option<usize>,
) -> Vec<Line> {
    let Some(leaks) = leaks else {
        let words = "  there are too many sites to follow them here; use heaptrace record, and heaptrace leaks";
        return vec![Line::new(Tone::Warning, words)];
    };
    let is_wide = width.is_none_or(|width| width >= WIDE);
    let blocks = |words: &str| match is_wide {
        true => format!("  {words:>11}"),
        false => String::new(),
    };
    let headings = format!(
        "{:>13}  {:>12}  {:>10}{}  {:>6}  allocated by",
        "grows by",
        "confidence",
        "live bytes",
        blocks("live blocks"),
        "freed"
    );
    let mut lines = vec![Line::new(Tone::Faint, headings)];
    let sure = leaks.growing.iter().map(|it| (it, it.confidence()));
    let unsure = leaks.unsure.iter().map(|it| (it, "unsure".to_owned()));
    for (growth, confidence) in sure.chain(unsure).take(most) {
        let totals = &growth.totals;
        let mut line = format!(
            "{:>13}  {confidence:>12}  {:>10}{}  {:>6}  ",
            format!("+{}", growth.rate()),
            text::bytes(totals.live_bytes),
            blocks(&text::count(totals.live_allocations)),
            freed(growth)
        );
        let room = width.map(|width| width.saturating_sub(line.chars().count()));
        let names = input.user_functions(growth.stack, FUNCTIONS);
        line.push_str(&joined(&names, room));
        lines.push(line.into());
    }
    if lines.len() == 1 {
        lines.push(Line::new(Tone::Faint, none(leaks)));
    }
    lines
}

/// The share of what a site allocated in this time that it freed.
fn freed(growth: &Growth) -> String {
    match growth.freed {
        0 => "none".to_owned(),
        freed => text::share(freed, growth.allocated),
    }
}

/// Why there are no rows.
fn none(leaks: &Leaks) -> String {
    if leaks.is_long_enough {
        let (from, until) = (leaks.from_ns, leaks.until_ns);
        return format!(
            "  no site grows from {} to {} into the run",
            text::duration(from),
            text::duration(until)
        );
    }
    format!(
        "  the run is too short: {} of {} steps so far",
        leaks.steps,
        Leaks::FEWEST
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{Completeness, Kind, ProcessId, Stack, StackId, Totals};
    use crate::profile::{Profile, RunInfo, Symbols};

    fn growth(bytes_per_second: f64, chance: f64) -> Growth {
        Growth {
            process: ProcessId(0),
            stack: StackId(0),
            kind: Kind::Heap,
            totals: Totals {
                live_bytes: 5 << 20,
                live_allocations: 5_432,
                ..Totals::default()
            },
            floors: vec![(0, 0); 12],
            rose: 11,
            grew: 1 << 20,
            chance,
            bytes_per_second: [bytes_per_second; 3],
            allocated: 100,
            freed: 25,
            ever_freed: true,
            error: 0,
            survival: Default::default(),
        }
    }

    fn found(growing: Vec<Growth>, unsure: Vec<Growth>, steps: usize) -> Leaks {
        Leaks {
            from_ns: 5_000_000_000,
            until_ns: 20_000_000_000,
            steps,
            is_long_enough: steps >= Leaks::FEWEST,
            changed: 3,
            growing,
            unsure,
            left: Vec::new(),
            generations: Default::default(),
            unreachable: Default::default(),
            suppressed: Vec::new(),
        }
    }

    fn rows(leaks: Option<&Leaks>, most: usize, width: usize) -> Vec<String> {
        let mut profile = Profile::new(RunInfo::exact("x"));
        profile.stacks.push(Stack {
            locations: Vec::new(),
            completeness: Completeness::Broken,
        });
        let symbols = Symbols::default();
        let input = ReportInput::new(&profile, &symbols);
        let lines = lines(&input, leaks, most, Some(width));
        lines.into_iter().map(|it| it.text).collect()
    }

    /// Check that suspects are shown with their rates, sure ones first, and that the reason is said if there are none.
    #[test]
    fn suspects_have_rows() {
        let leaks = found(vec![growth(5_000.0, 1e-7)], vec![growth(20.0, 0.5)], 12);
        let narrow = rows(Some(&leaks), 10, 80);
        assert_eq!(
            narrow[..2],
            [
                "     grows by    confidence  live bytes   freed  allocated by",
                "   +4.9 KiB/s  over 99.99 %     5.0 MiB  25.0 %  ",
            ]
        );
        assert!(
            narrow[2].starts_with(" +1.2 KiB/min        unsure "),
            "{}",
            narrow[2]
        );
        assert!(rows(Some(&leaks), 10, 140)[1].contains("  5,432  "));
        assert_eq!(rows(Some(&leaks), 1, 80).len(), 2);
        let none = |steps| rows(Some(&found(Vec::new(), Vec::new(), steps)), 9, 80).pop();
        assert_eq!(
            none(12).unwrap(),
            "  no site grows from 5.00 s to 20.0 s into the run"
        );
        assert_eq!(
            none(2).unwrap(),
            "  the run is too short: 2 of 6 steps so far"
        );
        assert!(rows(None, 9, 80)[0].contains("too many sites"));
    }
}
