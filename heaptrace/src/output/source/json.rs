//! Source files for programs: JSON, schema 1.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use std::io::{self, Write};

use serde::Serialize;

use super::files::{SourceFiles, SourceText};
use super::lines::{SourceFile, SourceLine};
use crate::output::counters::Counters;
use crate::output::filter::Filter;
use crate::output::interval::Intervals;
use crate::output::json::{Mode, Range};
use crate::output::json_escaping::write_line;
use crate::output::report_input::ReportInput;

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    version: &'a str,
    mode: Mode,
    duration_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<Range>,
    warnings: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters: Vec<String>,
    /// Of the whole run, also of what has no lines.
    totals: Counters,
    /// With those that are left out.
    files_in_all: usize,
    files: Vec<File<'a>>,
}

#[derive(Serialize)]
struct File<'a> {
    path: &'a str,
    /// Where its text was read; absent if it is not at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_from: Option<&'a str>,
    /// Whether it was changed after the program was recorded.
    changed_since: bool,
    /// What its lines allocate themselves.
    totals: Counters,
    lines: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    line: u32,
    function: &'a str,
    /// What it allocates, itself or by what it calls.
    totals: Counters,
    /// What it allocates itself; absent if that is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    own: Option<Counters>,
    /// Absent if the file is not at hand, or has no such line.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// Writes source files, each with its text, as one line.
pub fn write_source_json(
    input: &ReportInput<'_>,
    found: &SourceFiles,
    out: &mut dyn Write,
) -> io::Result<()> {
    let profile = input.profile;
    let intervals = &Intervals::of(profile);
    let report = Report {
        schema: 1,
        version: &profile.info.version,
        mode: profile.info.mode.into(),
        duration_ns: profile.duration_ns,
        range: profile.range.map(Into::into),
        warnings: input.warnings,
        filters: input.filters.iter().map(Filter::in_full).collect(),
        totals: Counters::new(&profile.totals, intervals),
        files_in_all: found.all,
        files: found
            .files
            .iter()
            .map(|(file, source)| File::new(file, source, intervals))
            .collect(),
    };
    write_line(&report, out)
}

impl<'a> File<'a> {
    fn new(file: &'a SourceFile, source: &'a SourceText, intervals: &Intervals) -> Self {
        let text: Vec<&str> = source.text.iter().flat_map(|it| it.lines()).collect();
        let lines = file.lines.iter();
        Self {
            path: &file.path,
            read_from: source.text.as_ref().map(|_| source.read_from.as_str()),
            changed_since: source.is_newer,
            totals: Counters::new(&file.totals, intervals),
            lines: lines
                .map(|(number, line)| Line::new(*number, line, &text, intervals))
                .collect(),
        }
    }
}

impl<'a> Line<'a> {
    fn new(number: u32, line: &'a SourceLine, text: &[&'a str], intervals: &Intervals) -> Self {
        Self {
            line: number,
            function: &line.function,
            totals: Counters::new(&line.totals, intervals),
            own: line.is_own.then(|| Counters::new(&line.own, intervals)),
            text: text.get(number as usize - 1).copied(),
        }
    }
}
