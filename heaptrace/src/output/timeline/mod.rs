//! Memory over time: `heaptrace timeline`.
//!
//! Stage: output. `course.rs` finds the numbers; each format has a file of its own.

mod axis;
mod course;
mod csv;
mod json;
mod name;
mod options;
mod picture;
mod plot;
#[cfg(test)]
mod tests;

use std::io::{BufWriter, Write};

use super::error::OutputError;
use super::report_input::ReportInput;
pub use course::{Timeline, timeline};
pub use options::TimelineOptions;

/// The form of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineFormat {
    /// A plot in a terminal.
    Text,
    /// A picture.
    Svg,
    /// A table.
    Csv,
    /// For programs.
    Json,
}

/// Writes a timeline.
pub fn write_timeline(
    input: &ReportInput<'_>,
    timeline: &Timeline,
    format: TimelineFormat,
    options: &TimelineOptions,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let mut out = BufWriter::new(out);
    match format {
        TimelineFormat::Text => plot::write(input, timeline, options, &mut out),
        TimelineFormat::Svg => picture::write(input, timeline, &mut out),
        TimelineFormat::Csv => csv::write(timeline, &mut out),
        TimelineFormat::Json => json::write(input, timeline, &mut out),
    }?;
    out.flush()?;
    Ok(())
}
