//! The formats of other programs: `heaptrace export`.
//!
//! Stage: output. One file per format. Estimates are written as they are; a format that says how blocks were sampled says that all
//! were, so that no reader scales them again.

mod addresses;
mod blocks;
pub(super) mod csv;
mod firefox;
mod folded;
mod heap_text;
mod heaptrack;
mod jeheap;
mod speedscope;

use std::io::{BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::error::OutputError;
use super::json;
use super::metric::Metric;
use super::report_input::ReportInput;

/// A format of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Folded stacks of one metric, for flame graph tools.
    Folded,
    /// gperftools' heap profile.
    HeapText,
    /// jemalloc's heap profile.
    Jeheap,
    /// speedscope's file.
    Speedscope,
    /// The Firefox profiler's file.
    Firefox,
    /// heaptrack's file.
    Heaptrack,
    /// The report as JSON.
    Json,
    /// A table of all sites.
    Csv,
}

impl ExportFormat {
    /// Every format, in the order of the help texts.
    pub const ALL: [Self; 8] = [
        Self::Folded,
        Self::HeapText,
        Self::Jeheap,
        Self::Speedscope,
        Self::Firefox,
        Self::Heaptrack,
        Self::Json,
        Self::Csv,
    ];

    /// The name for `--format`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::HeapText => "heap-text",
            Self::Jeheap => "jeheap",
            Self::Speedscope => "speedscope",
            Self::Firefox => "firefox",
            Self::Heaptrack => "heaptrack",
            Self::Json => "json",
            Self::Csv => "csv",
        }
    }

    /// The name of a file in this format, if the user chose none. Readers go by its end.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Folded => "heaptrace.folded",
            Self::HeapText => "heaptrace.heap",
            Self::Jeheap => "heaptrace.jeheap",
            Self::Speedscope => "heaptrace.speedscope.json",
            Self::Firefox => "heaptrace.firefox.json",
            Self::Heaptrack => "heaptrace.heaptrack.gz",
            Self::Json => "heaptrace.json",
            Self::Csv => "heaptrace.csv",
        }
    }

    /// Whether a file in this format has one metric, or one that is shown first.
    pub fn has_metric(self) -> bool {
        matches!(self, Self::Folded | Self::Speedscope | Self::Firefox)
    }
}

/// An export, with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// The format.
    pub format: ExportFormat,
    /// The metric of formats that have one, or that show one first.
    pub metric: Metric,
    /// Whether the file is gzipped.
    pub is_compressed: bool,
}

impl Export {
    /// Writes a profile in the format.
    pub(super) fn write(
        &self,
        input: &ReportInput<'_>,
        out: &mut dyn Write,
    ) -> Result<(), OutputError> {
        if !self.is_compressed {
            return self.write_plain(input, out);
        }
        let mut encoder = BufWriter::new(GzEncoder::new(out, Compression::default()));
        self.write_plain(input, &mut encoder)?;
        let encoder = encoder.into_inner().map_err(|error| error.into_error())?;
        Ok(encoder.finish()?.flush()?)
    }

    fn write_plain(&self, input: &ReportInput<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
        match self.format {
            ExportFormat::Folded => folded::write(input, self.metric, out),
            ExportFormat::HeapText => heap_text::write(input, out),
            ExportFormat::Jeheap => jeheap::write(input, out),
            ExportFormat::Speedscope => speedscope::write(input, self.metric, out),
            ExportFormat::Firefox => firefox::write(input, self.metric, out),
            ExportFormat::Heaptrack => heaptrack::write(input, out),
            ExportFormat::Json => json::write(input, out),
            ExportFormat::Csv => csv::write(input, out),
        }
    }
}
