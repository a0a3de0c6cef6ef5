//! Differences between two profiles: `heaptrace diff`.
//!
//! Stage: output. `rows.rs` joins them; each format has a file of its own.

mod change;
mod json;
mod picture;
mod rows;
mod side;
mod text;

use std::io::{BufWriter, Write};

use super::error::OutputError;
pub use side::{DiffOptions, Side};

/// The form of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffFormat {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
    /// A flame graph of the new profile, whose colors show what changed.
    Flamegraph,
}

/// Writes the difference of two profiles.
pub fn write_diff(
    old: &Side<'_>,
    new: &Side<'_>,
    format: DiffFormat,
    options: &DiffOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let mut out = BufWriter::new(out);
    match format {
        DiffFormat::Text => text::write(old, new, options, &mut out),
        DiffFormat::Json => json::write(old, new, options, &mut out),
        DiffFormat::Flamegraph => picture::write(old, new, options.metric, &mut out),
    }?;
    out.flush()?;
    Ok(())
}
