//! The result of one part of the benchmarks.
//!
//! Part of bench.

use super::figure::Figure;

/// What a part gave.
#[derive(Default)]
pub(super) struct Section {
    /// Of the page.
    pub(super) text: String,
    pub(super) figures: Vec<Figure>,
}
