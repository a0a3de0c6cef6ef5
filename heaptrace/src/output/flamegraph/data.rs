//! The data of the page's script: names, and the frames of every metric.
//!
//! Stage: output. Metrics share the names. The frames are bare numbers, because there are many.

use serde::Serialize;

use super::colors::Colors;
use super::graph::{Graph, Names};
use crate::output::error::OutputError;
use crate::output::shown::language_name;

#[derive(Serialize)]
struct Page<'a> {
    /// The metric that is shown first, as an index.
    first: usize,
    /// The color of the frame that holds all others.
    all: usize,
    /// The colors with their meaning.
    legend: &'a [(usize, String)],
    modules: Vec<&'a str>,
    names: Vec<Named<'a>>,
    metrics: Vec<Metric<'a>>,
}

/// The name in three lengths, the color, the module or -1, and the language. A length that equals the one before is empty, and so
/// is the language of machine code.
#[derive(Serialize)]
struct Named<'a>(&'a str, &'a str, &'a str, usize, i64, &'static str);

#[derive(Serialize)]
struct Metric<'a> {
    name: &'static str,
    title: &'static str,
    is_bytes: bool,
    heading: &'a str,
    subtitle: &'a [String],
    sum: u64,
    /// For each frame: its depth, its name, its position from the beginning of its caller, and its value.
    frames: Vec<u64>,
    /// For each frame: the standard error of its value. Empty if every allocation was recorded.
    errors: Vec<u64>,
}

/// The data as JSON that can stand in an SVG.
pub(super) fn json(
    graphs: &[Graph],
    first: usize,
    names: &Names<'_>,
) -> Result<String, OutputError> {
    let mut modules: Vec<&str> = names
        .names
        .iter()
        .filter_map(|name| name.module.as_deref())
        .collect();
    modules.sort_unstable();
    modules.dedup();
    let module = |module: &Option<String>| {
        let module = module.as_deref()?;
        modules.binary_search(&module).ok()
    };
    let named = (0..).zip(names.names).zip(&names.labels);
    let page = Page {
        first,
        all: Colors::of_all(),
        legend: &names.colors.legend,
        names: named
            .map(|((id, name), labels)| {
                let [full, brief, bare] = [&labels.full, &labels.brief, &labels.bare];
                Named(
                    full,
                    if brief == full { "" } else { brief },
                    if bare == brief { "" } else { bare },
                    names.colors.color(id),
                    module(&name.module).map_or(-1, |module| module as i64),
                    name.language.map_or("", |it| language_name(Some(it))),
                )
            })
            .collect(),
        metrics: graphs.iter().map(metric).collect(),
        modules,
    };
    let json = serde_json::to_string(&page).map_err(std::io::Error::from)?;
    // These characters occur only in strings. In an SVG they would end the data, or begin markup.
    Ok(json
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026"))
}

fn metric(graph: &Graph) -> Metric<'_> {
    let frames = &graph.folded.frames;
    let mut numbers = Vec::with_capacity(4 * frames.len());
    // The beginnings of the frame and its callers.
    let mut begins = vec![0];
    let places = graph.layout.places.iter().filter(|it| it.frame.is_some());
    for (frame, place) in frames.iter().zip(places) {
        begins.truncate(frame.depth + 1);
        let from = begins.last().map_or(0, |begin| place.x - begin);
        begins.push(place.x);
        numbers.extend([frame.depth as u64, u64::from(frame.name), from, frame.value]);
    }
    let is_exact = frames.iter().all(|frame| frame.error == 0);
    Metric {
        name: graph.metric.name(),
        title: graph.metric.title(),
        is_bytes: graph.metric.is_bytes(),
        heading: &graph.heading.title,
        subtitle: &graph.heading.subtitle,
        sum: graph.folded.sum,
        frames: numbers,
        errors: if is_exact {
            Vec::new()
        } else {
            frames.iter().map(|frame| frame.error).collect()
        },
    }
}
