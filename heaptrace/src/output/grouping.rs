//! What a report groups sites by.
//!
//! Stage: output.

use super::label::Label;
use super::metric::Metric;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// What puts sites together.
    pub by: Label,
    /// What groups are ranked by.
    pub metric: Metric,
    /// Whether what is allocated below a function, a line or a module is wanted, too.
    pub cumulative: bool,
    /// How many are wanted; all, where nothing is said.
    pub top: Option<usize>,
}
