//! The formats that a profile can be written in.
//!
//! Stage: output. Selects the writer of a format; each writer has a file of its own.

use std::io::{BufWriter, Write};

use super::error::OutputError;
use super::export::Export;
use super::metric::Metric;
use super::report::ReportOptions;
use super::report_input::ReportInput;
use super::{flamegraph, json, pprof, report};

/// An output format, with its options.
#[derive(Clone, Debug)]
pub enum Format {
    /// The report for people.
    Text(ReportOptions),
    /// The report for programs.
    Json,
    /// A flame graph, as SVG.
    Flamegraph(Metric),
    /// A gzipped profile.proto.
    Pprof,
    /// A format of another program.
    Export(Export),
}

impl Format {
    /// Writes a profile in this format.
    pub fn write(&self, input: &ReportInput<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
        // All formats write in small pieces.
        let mut out = BufWriter::new(out);
        match self {
            Self::Text(options) => report::write(input, options, &mut out),
            Self::Json => json::write(input, &mut out),
            Self::Flamegraph(metric) => flamegraph::write(input, *metric, &mut out),
            Self::Pprof => pprof::write(input, &mut out),
            Self::Export(export) => export.write(input, &mut out),
        }?;
        out.flush()?;
        Ok(())
    }
}
