//! One of two profiles that are compared, and what of them is compared.
//!
//! Stage: output.

use crate::output::interval::Intervals;
use crate::output::label::Label;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;

/// One of the two profiles.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    pub(super) name: &'a str,
    pub(super) input: ReportInput<'a>,
    pub(super) intervals: Intervals,
}

impl<'a> Side<'a> {
    /// A profile, and the name of its file.
    pub fn new(name: &'a str, input: ReportInput<'a>) -> Self {
        Self {
            name,
            input,
            intervals: Intervals::of(input.profile),
        }
    }
}

/// What a difference shows, and how.
#[derive(Clone, Copy, Debug)]
pub struct DiffOptions {
    /// The number that is compared.
    pub metric: Metric,
    /// What is compared.
    pub by: Label,
    /// The most rows; all if `None`.
    pub top: Option<usize>,
    /// Whether to use colors.
    pub color: bool,
    /// The width of the terminal, if it is one.
    pub width: Option<usize>,
}
