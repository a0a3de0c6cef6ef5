//! A timeline as a picture: areas on each other, one for each group, below the line of the total.
//!
//! Stage: output. Escapes every name of a traced process.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::course::Timeline;
use super::{axis, name, plot};
use crate::output::moments::moments;
use crate::output::report_input::ReportInput;
use crate::output::svg::{COLORS, content, cut};
use crate::text::escape;

/// The size of the picture and of the plot in it.
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 92.0;
const PLOT: f64 = 300.0;
const LEGEND_ROW: f64 = 20.0;

/// The characters of a name in the legend.
const NAME: usize = 46;

/// Where times and numbers are in the picture.
struct Scale<'a> {
    timeline: &'a Timeline,
    from: u64,
    to: u64,
    top: u64,
}

impl Scale<'_> {
    fn x(&self, time: u64) -> f64 {
        let span = self.to.saturating_sub(self.from).max(1) as f64;
        let after = time.clamp(self.from, self.to) - self.from;
        LEFT + (WIDTH - LEFT - RIGHT) * after as f64 / span
    }

    fn y(&self, value: u64) -> f64 {
        let share = value.min(self.top) as f64 / self.top.max(1) as f64;
        TOP + PLOT * (1.0 - share)
    }

    /// The points of a curve.
    fn points(&self, values: &[u64]) -> Vec<String> {
        let pairs = self.timeline.times.iter().zip(values);
        pairs
            .map(|(time, value)| format!("{:.1},{:.1}", self.x(*time), self.y(*value)))
            .collect()
    }

    /// The area between two curves.
    fn area(&self, below: &[u64], above: &[u64]) -> String {
        let mut points = self.points(above);
        points.extend(self.points(below).into_iter().rev());
        points.join(" ")
    }
}

/// Writes the picture.
pub(super) fn write(
    input: &ReportInput<'_>,
    timeline: &Timeline,
    out: &mut dyn Write,
) -> io::Result<()> {
    let upper = timeline.total.iter().map(|it| it.upper().max(it.most));
    let ticks = axis::numbers(timeline.metric, upper.max().unwrap_or(0), 4);
    let first = timeline.times.first().copied().unwrap_or(0);
    let scale = Scale {
        timeline,
        from: first,
        to: timeline.times.iter().copied().max().unwrap_or(first),
        top: ticks.last().copied().unwrap_or(1),
    };
    // Estimates are rounded, each by itself.
    let most = timeline.total.iter().map(|it| it.value).max().unwrap_or(0);
    let has_rest = timeline.rest.iter().any(|it| *it > most / 1_000);
    let entries = timeline.groups.len() + usize::from(has_rest);
    let rows = entries.div_ceil(2);
    let height = TOP + PLOT + 52.0 + LEGEND_ROW * rows as f64 + 14.0;
    head(input, timeline, height, out)?;
    grid(&scale, &ticks, out)?;
    areas(input, &scale, has_rest, out)?;
    total(&scale, out)?;
    happened(input, &scale, out)?;
    legend(input, timeline, has_rest, out)?;
    writeln!(out, "</svg>")
}

fn head(
    input: &ReportInput<'_>,
    timeline: &Timeline,
    height: f64,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut light = String::new();
    let mut dark = String::new();
    for (at, [on_white, on_black]) in COLORS.iter().enumerate() {
        let _ = write!(light, ".c{at}{{fill:{on_white}}}");
        let _ = write!(dark, ".c{at}{{fill:{on_black}}}");
    }
    let target = escape(&input.profile.info.target).into_owned();
    let title = cut(&format!("heaptrace: {target}"), 90);
    let mut parts = vec![plot::title(timeline), input.profile.chosen()];
    if !input.warnings.is_empty() {
        parts.push("INCOMPLETE".to_owned());
    }
    parts.extend(input.only());
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\">\n<title>{}</title>\n<style>\n\
         svg{{max-width:100%;height:auto;background:#fff}}\n\
         text{{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:#1a1a1a}}\n\
         .back{{fill:#fff}}.title{{font-size:17px;font-weight:600}}.dim{{fill:#595959}}.grid{{stroke:#e2e2e2}}.axis{{stroke:#8a8a8a}}\n\
         .total{{fill:none;stroke:#1a1a1a;stroke-width:1.6;stroke-linejoin:round}}.band{{fill:#1a1a1a;fill-opacity:.16}}\n\
         .area{{fill-opacity:.82}}.rest{{fill:#b4b4b4}}.mark{{fill:#d11149}}.mark-line{{stroke:#d11149;stroke-dasharray:3 3}}\n\
         .peak{{fill:#b00d3c;font-weight:600}}{light}\n\
         @media (prefers-color-scheme:dark){{svg{{background:#16181d}}text{{fill:#f2f2f2}}.back{{fill:#16181d}}.dim{{fill:#a8a8a8}}\
         .grid{{stroke:#2e3138}}.axis{{stroke:#7d828c}}.total{{stroke:#f2f2f2}}.band{{fill:#f2f2f2;fill-opacity:.22}}.rest{{fill:#6a6e77}}\
         .mark{{fill:#ff6b8f}}.mark-line{{stroke:#ff6b8f}}.peak{{fill:#ff8fab}}{dark}}}\n</style>\n\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"20\" y=\"32\">{}</text>\n<text class=\"dim\" x=\"20\" y=\"54\">{}</text>",
        content(&title),
        content(&title),
        content(&cut(&parts.join("; "), 130)),
    )
}

fn grid(scale: &Scale<'_>, ticks: &[u64], out: &mut dyn Write) -> io::Result<()> {
    let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT);
    for tick in ticks {
        let y = scale.y(*tick);
        let words = axis::number(scale.timeline.metric, *tick);
        writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"dim\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{words}</text>",
            LEFT - 8.0,
            y + 4.5
        )?;
    }
    let times = axis::times(scale.from, scale.to, 10);
    for time in &times {
        let x = scale.x(*time);
        let words = axis::time(*time, &times);
        writeln!(
            out,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
             <text class=\"dim\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{words}</text>",
            bottom + 5.0,
            bottom + 20.0
        )?;
    }
    Ok(())
}

fn areas(
    input: &ReportInput<'_>,
    scale: &Scale<'_>,
    has_rest: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let timeline = scale.timeline;
    let mut below = vec![0_u64; timeline.times.len()];
    let groups = timeline.groups.iter().enumerate().map(|(at, series)| {
        let values: Vec<u64> = series.values.iter().map(|it| it.value).collect();
        let name = name::fitted(input, timeline.by, &series.group, 90);
        (format!("c{}", at % COLORS.len()), name, values)
    });
    let rest = has_rest.then(|| {
        (
            "rest".to_owned(),
            "others".to_owned(),
            timeline.rest.clone(),
        )
    });
    for (class, name, values) in groups.chain(rest) {
        let above: Vec<u64> = below
            .iter()
            .zip(&values)
            .map(|(below, value)| below.saturating_add(*value))
            .collect();
        let most = values.iter().copied().max().unwrap_or(0);
        writeln!(
            out,
            "<polygon class=\"area {class}\" points=\"{}\"><title>{}: at most {}</title></polygon>",
            scale.area(&below, &above),
            content(&name),
            timeline.metric.format(most)
        )?;
        below = above;
    }
    Ok(())
}

fn total(scale: &Scale<'_>, out: &mut dyn Write) -> io::Result<()> {
    let timeline = scale.timeline;
    let bottom = TOP + PLOT;
    if timeline.is_sampled {
        let lower: Vec<u64> = timeline
            .total
            .iter()
            .map(super::course::Point::lower)
            .collect();
        let upper: Vec<u64> = timeline
            .total
            .iter()
            .map(super::course::Point::upper)
            .collect();
        let band = scale.area(&lower, &upper);
        writeln!(
            out,
            "<polygon class=\"band\" points=\"{band}\"><title>the range that holds the true number in 95 % of runs</title></polygon>"
        )?;
    }
    let values: Vec<u64> = timeline.total.iter().map(|it| it.value).collect();
    let points = scale.points(&values).join(" ");
    writeln!(out, "<polyline class=\"total\" points=\"{points}\"/>")?;
    writeln!(
        out,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{bottom}\" y2=\"{bottom}\"/>",
        WIDTH - RIGHT
    )?;
    let Some(peak) = timeline.peak else {
        return Ok(());
    };
    let middle = peak.after_ns / 2 + peak.at_ns / 2;
    let (x, y) = (scale.x(middle), scale.y(peak.value));
    let words = plot::highest(timeline.metric, peak);
    let (anchor, beside) = match x > WIDTH / 2.0 {
        true => ("end", x - 9.0),
        false => ("start", x + 9.0),
    };
    writeln!(
        out,
        "<line class=\"mark-line\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{bottom}\"/>\
         <circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>\
         <text class=\"peak\" x=\"{beside:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{words}</text>",
        y - 9.0
    )
}

/// A line for each moment at which something happened by itself.
fn happened(input: &ReportInput<'_>, scale: &Scale<'_>, out: &mut dyn Write) -> io::Result<()> {
    const MOST: usize = 100;
    let bottom = TOP + PLOT;
    for moment in moments(input).into_iter().take(MOST) {
        let x = scale.x(moment.at_ns);
        writeln!(
            out,
            "<g><title>{}</title><line class=\"mark-line\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <path class=\"mark\" d=\"M{:.1} {} h10 l-5 8z\"/></g>",
            content(&moment.words),
            x - 5.0,
            bottom - 9.0,
        )?;
    }
    Ok(())
}

fn legend(
    input: &ReportInput<'_>,
    timeline: &Timeline,
    has_rest: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let groups = timeline.groups.iter().enumerate().map(|(at, series)| {
        let name = name::fitted(input, timeline.by, &series.group, NAME);
        (format!("c{}", at % COLORS.len()), name, series.most)
    });
    let rest = has_rest.then(|| {
        let most = timeline.rest.iter().copied().max().unwrap_or(0);
        let others = timeline.all.saturating_sub(timeline.groups.len());
        let name = match others {
            0 => "not in any of these".to_owned(),
            others => format!("{others} others"),
        };
        ("rest".to_owned(), name, most)
    });
    let entries: Vec<_> = groups.chain(rest).collect();
    let rows = entries.len().div_ceil(2).max(1);
    for (at, (class, name, most)) in entries.iter().enumerate() {
        let x = LEFT + (WIDTH - LEFT - RIGHT) / 2.0 * (at / rows) as f64;
        let y = TOP + PLOT + 52.0 + LEGEND_ROW * (at % rows) as f64;
        writeln!(
            out,
            "<rect class=\"area {class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{} <tspan class=\"dim\">at most {}</tspan></text>",
            y - 10.5,
            x + 19.0,
            content(name),
            timeline.metric.format(*most)
        )?;
    }
    Ok(())
}
