//! The report that is being written: input, options and writer.
//!
//! Stage: output. Each section of a report has a file of its own, and writes to a [`Page`].

use std::io::{self, Write};

use super::paragraph;
use crate::output::interval::Intervals;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::style::Style;

/// Options of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportOptions {
    /// The metric by which sites are ranked.
    pub metric: Metric,
    /// The number of sites to show.
    pub top: usize,
    /// Whether everything is shown: processes, allocators, sizes, rates and all counters.
    pub details: bool,
    /// Whether each site has histograms of its sizes and lifetimes.
    pub histogram: bool,
    /// Whether colours are used.
    pub color: bool,
    /// The width of the terminal in columns, if it is one.
    pub width: Option<usize>,
}

impl ReportOptions {
    /// The width in columns if the terminal's width is unknown.
    pub(in crate::output) const WIDTH: usize = 100;
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            metric: Metric::default(),
            top: 10,
            details: false,
            histogram: false,
            color: false,
            width: None,
        }
    }
}

/// The report that is being written.
pub(super) struct Page<'a, 'o> {
    pub(super) input: &'a ReportInput<'a>,
    pub(super) options: &'a ReportOptions,
    pub(super) intervals: Intervals,
    pub(super) style: Style,
    pub(super) width: usize,
    pub(super) out: &'o mut dyn Write,
}

impl<'a, 'o> Page<'a, 'o> {
    pub(super) fn new(
        input: &'a ReportInput<'a>,
        options: &'a ReportOptions,
        out: &'o mut dyn Write,
    ) -> Self {
        Self {
            input,
            options,
            intervals: Intervals::of(input.profile),
            style: Style::new(options.color),
            width: options.width.unwrap_or(ReportOptions::WIDTH).clamp(40, 400),
            out,
        }
    }

    /// Writes a number with its name and what belongs to it.
    pub(super) fn number(&mut self, name: &str, value: &str, rest: &str) -> io::Result<()> {
        let value = self.style.bold(&format!("{value:>10}"));
        let gap = if rest.is_empty() { "" } else { "  " };
        writeln!(self.out, "  {name:<13}{value}{gap}{rest}")
    }

    /// Writes a warning, in as many lines as it needs.
    pub(super) fn warn(&mut self, text: &str) -> io::Result<()> {
        for line in paragraph::lines("! ", text, self.width) {
            writeln!(self.out, "{}", self.style.warning(&line))?;
        }
        Ok(())
    }
}
