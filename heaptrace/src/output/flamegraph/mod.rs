//! Draws flame graphs of all metrics as one SVG: a picture, and a page for browsers.
//!
//! Stage: output. Without a script, as in a document, the SVG is the picture of one metric. In a browser, a
//! script replaces the picture by a page that can switch, zoom and search.

mod colors;
mod data;
mod graph;
mod heading;
mod labels;
mod layout;
mod picture;

use std::io::Write;

use super::error::OutputError;
use super::folded::Folder;
use super::metric::Metric;
use super::report_input::ReportInput;
use graph::{Graph, Names};
use heading::{Heading, NARROWEST};

pub use heading::why_not_drawn;

/// The metric that is drawn first if this one is asked for: another if it is zero everywhere, `None` if all
/// are.
pub fn drawn_metric(input: &ReportInput<'_>, metric: Metric) -> Option<Metric> {
    [
        metric,
        Metric::LeftBytes,
        Metric::PeakBytes,
        Metric::TotalBytes,
    ]
    .into_iter()
    .chain(Metric::ALL)
    .find(|it| is_drawn(input, *it))
}

fn is_drawn(input: &ReportInput<'_>, metric: Metric) -> bool {
    let mut sites = input.profile.sites.iter();
    sites.any(|site| metric.of(&site.totals) > 0)
}

/// Draws the stacks of all metrics, this one first, the innermost frames at the top.
pub(super) fn write(
    input: &ReportInput<'_>,
    metric: Metric,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let first = drawn_metric(input, metric).ok_or(OutputError::Nothing)?;
    let mut folder = Folder::new(input);
    let mut graphs = Vec::new();
    for it in Metric::ALL.into_iter().filter(|it| is_drawn(input, *it)) {
        let folded = folder.fold(it, NARROWEST / 100.0)?;
        let missing = (it == first && it != metric).then_some(metric);
        graphs.push(Graph {
            metric: it,
            heading: Heading::of(input, it, missing, folded.left_out),
            layout: layout::of(&folded)?,
            folded,
        });
    }
    let names = Names::of(&graphs, folder.names(), input.full_names);
    let first = graphs.iter().position(|graph| graph.metric == first);
    let first = first.unwrap_or(0);
    // The SVG is built in memory, so that nothing is written if it can't be drawn.
    let mut svg = String::new();
    if let Some(graph) = graphs.get(first) {
        picture::draw(graph, &names, &mut svg);
    }
    svg.push_str("<script type=\"application/json\" id=\"data\">");
    svg.push_str(&data::json(&graphs, first, &names)?);
    svg.push_str("</script>\n<script><![CDATA[\n");
    svg.push_str(include_str!("page.js"));
    svg.push_str("]]></script>\n</svg>\n");
    out.write_all(svg.as_bytes())?;
    Ok(())
}
