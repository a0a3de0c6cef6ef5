//! The result of one part of the benchmarks.
//!
//! Part of bench.

use super::figure::Figure;

/// The result of one part.
#[derive(Default)]
pub(super) struct Section {
    /// The text for the page.
    pub(super) text: String,
    pub(super) figures: Vec<Figure>,
}
