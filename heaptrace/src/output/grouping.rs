//! What a report groups sites by.
//!
//! Stage: output.

use super::label::Label;
use super::metric::Metric;

/// The requested grouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// The name by which sites are grouped.
    pub by: Label,
    /// The metric by which groups are ranked.
    pub metric: Metric,
    /// Whether to count also what is allocated by callees of a function, a line or a module.
    pub cumulative: bool,
    /// The largest number of groups; all if `None`.
    pub top: Option<usize>,
}
