//! Cells of the tables in docs/benchmarks.md.
//!
//! Part of bench. It must not know what was measured.

use super::stats::Spread;

/// Formats a median with its range for a table.
pub(super) fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(String::new, |spread| {
        format!(
            "{:.digits$} ({:.digits$}–{:.digits$})",
            spread.median, spread.min, spread.max
        )
    })
}

/// Formats the median of some values for a table, in multiples of `unit`.
pub(super) fn middle(values: &[f64], unit: f64, digits: usize) -> String {
    Spread::of(values).map_or_else(String::new, |spread| {
        format!("{:.digits$}", spread.median / unit)
    })
}
