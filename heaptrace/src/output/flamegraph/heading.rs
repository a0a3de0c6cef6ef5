//! The title and the subtitle of a flame graph.
//!
//! Stage: output.

use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::text;

/// The narrowest frame that is drawn, in percent of the graph's width: one pixel of a graph nine times as
/// wide as a screen.
pub(super) const NARROWEST: f64 = 0.01;

/// The longest target that is written whole, in characters.
const LONGEST_TARGET: usize = 200;

/// The texts above a graph. Safe to print.
#[derive(Debug)]
pub(super) struct Heading {
    pub(super) title: String,
    /// The parts of the subtitle, which may stand on different lines.
    pub(super) subtitle: Vec<String>,
}

impl Heading {
    /// The texts for a metric. It may be drawn because another one is missing.
    pub(super) fn of(
        input: &ReportInput<'_>,
        metric: Metric,
        missing: Option<Metric>,
        left_out: u64,
    ) -> Self {
        let target = text::escape(&input.profile.info.target);
        let mut title = format!("heaptrace: {} of ", metric.title());
        title.extend(target.chars().take(LONGEST_TARGET));
        if target.chars().nth(LONGEST_TARGET).is_some() {
            title.push('…');
        }
        if let Some(missing) = missing {
            title.push_str(&format!(" ({})", why_not_drawn(missing, metric)));
        }
        Self {
            title,
            subtitle: subtitle(input, metric, left_out),
        }
    }
}

/// Why another metric than this one is drawn: `all was freed`.
pub fn why_not_drawn(metric: Metric, drawn: Metric) -> String {
    match metric {
        Metric::LiveBytes | Metric::LiveAllocations if drawn == Metric::LeftBytes => {
            "nothing is live".to_owned()
        }
        Metric::LiveBytes
        | Metric::LiveAllocations
        | Metric::LeftBytes
        | Metric::LeftAllocations => "all was freed".to_owned(),
        other => format!("there are no {}", other.title()),
    }
}

fn subtitle(input: &ReportInput<'_>, metric: Metric, left_out: u64) -> Vec<String> {
    let totals = &input.profile.totals;
    let mut parts = vec![
        input.profile.chosen(),
        match Metric::unfreed(input.profile) {
            Metric::LeftBytes => format!(
                "left at exit {} in {}",
                text::bytes(totals.left_bytes),
                text::count(totals.left_allocations)
            ),
            _ => format!(
                "live {} in {}",
                text::bytes(totals.live_bytes),
                text::count(totals.live_allocations)
            ),
        },
        format!(
            "total {} in {}",
            text::bytes(totals.allocated_bytes),
            text::count(totals.allocations)
        ),
        format!("peak {}", text::bytes(totals.peak_live_bytes)),
        text::duration(input.profile.duration_ns),
    ];
    let lost: u64 = input
        .profile
        .quality
        .lost
        .values()
        .fold(0, |sum, n| sum.saturating_add(*n));
    if lost > 0 {
        parts.push(format!("LOST {}", text::count(lost)));
    }
    parts.extend(input.only());
    if !input.warnings.is_empty() {
        parts.push("INCOMPLETE".to_owned());
    }
    if metric.error(totals) > 0 {
        let error = metric.format(metric.error(totals));
        parts.push(format!("standard error of {} {error}", metric.title()));
    }
    if left_out > 0 {
        let frames = text::count(left_out);
        let noun = if left_out == 1 { "frame" } else { "frames" };
        parts.push(format!("{frames} {noun} below {NARROWEST} % left out"));
    }
    parts
}
