//! What is drawn: a graph for each metric, and the texts and colors of frames.
//!
//! Stage: output. Must not know how a graph is written.

use std::rc::Rc;

use super::colors::Colors;
use super::heading::Heading;
use super::labels::Labels;
use super::layout::Layout;
use crate::output::folded::{Folded, Name};
use crate::output::metric::Metric;

/// The graph of a metric.
pub(super) struct Graph {
    pub(super) metric: Metric,
    pub(super) heading: Heading,
    pub(super) folded: Folded,
    pub(super) layout: Layout,
}

/// The texts and colors of frames, which all metrics share.
pub(super) struct Names<'a> {
    pub(super) names: &'a [Rc<Name>],
    pub(super) labels: Vec<Labels>,
    pub(super) colors: Colors,
}

impl<'a> Names<'a> {
    pub(super) fn of(graphs: &[Graph], names: &'a [Rc<Name>], in_full: bool) -> Self {
        let mut weights = vec![0.0; names.len()];
        for Graph { folded, .. } in graphs {
            for frame in &folded.frames {
                if let Some(weight) = weights.get_mut(frame.name as usize) {
                    *weight += frame.value as f64 / folded.sum as f64;
                }
            }
        }
        let weighted = names.iter().map(Rc::as_ref).zip(weights);
        Self {
            names,
            labels: names.iter().map(|name| Labels::of(name, in_full)).collect(),
            colors: Colors::of(weighted),
        }
    }
}
