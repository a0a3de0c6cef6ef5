//! Writes source files with the memory of each line beside it.
//!
//! Stage: output. Escapes every text of the files.

use std::borrow::Cow;
use std::io::{self, Write};

use super::files::{SourceFiles, SourceText};
use super::lines::{SourceFile, SourceLine};
use crate::output::metric::Metric;
use crate::output::report::ReportOptions;
use crate::output::report_input::ReportInput;
use crate::output::shorten;
use crate::output::style::Style;
use crate::profile::Mode;
use crate::text::{count, escape, share};

/// Lines without memory that are shown around each line with some.
const AROUND: u32 = 2;

/// Without details, a line is shown if it has this part of what the file's largest line has.
const LEAST_PART: u64 = 200;

/// Columns of a number.
const NUMBER: usize = 11;

/// Most columns of code where no terminal limits them.
const MOST_CODE: usize = 200;

/// Columns for which a tab stands.
const TAB: usize = 4;

/// Writes source files, each with its text.
pub fn write_source(
    input: &ReportInput<'_>,
    options: &ReportOptions,
    found: &SourceFiles,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (files, all) = (&found.files, found.all);
    let style = Style::new(options.color);
    let metric = options.metric;
    let width = options.width.unwrap_or(ReportOptions::WIDTH).clamp(40, 400);
    if files.is_empty() {
        return writeln!(
            out,
            "No source line allocates {}: the traced programs have no debug information, or nothing matches.\n\
             `heaptrace symbolize` adds it to a recording on a machine that has it.",
            metric.title()
        );
    }
    if let Some(only) = input.only() {
        writeln!(out, "{only}\n")?;
    }
    if input.profile.info.mode != Mode::Exact {
        writeln!(
            out,
            "Estimates from a sample; `heaptrace report` has their ranges.\n"
        )?;
    }
    for (file, source) in files {
        let listing = Listing {
            input,
            file,
            source,
            metric,
            style,
            width,
            room: match options.width {
                Some(_) => width.saturating_sub(2 * NUMBER + 12),
                None => MOST_CODE,
            },
            is_whole: options.details || found.are_chosen,
            gap: if found.are_chosen { u32::MAX } else { AROUND },
        };
        listing.write(metric.rank(&input.profile.totals), out)?;
        writeln!(out)?;
    }
    if files.len() < all {
        let left = all - files.len();
        writeln!(
            out,
            "{left} more {} with less; show them with --top {all}",
            if left == 1 { "file" } else { "files" }
        )?;
    }
    Ok(())
}

struct Listing<'a> {
    input: &'a ReportInput<'a>,
    file: &'a SourceFile,
    source: &'a SourceText,
    metric: Metric,
    style: Style,
    width: usize,
    /// Columns of code.
    room: usize,
    is_whole: bool,
    /// Lines without memory that are shown behind a line, before the next one.
    gap: u32,
}

impl Listing<'_> {
    fn write(&self, whole: u64, out: &mut dyn Write) -> io::Result<()> {
        let own = self.metric.of(&self.file.totals);
        let part = share(own, whole);
        let about = format!(
            "{} {} ({part})",
            self.metric.format(own),
            self.metric.title()
        );
        let path = escape(&self.file.path);
        let room = self.width.saturating_sub(about.chars().count() + 2);
        let path = shorten::cut_front(&path, room.max(20));
        writeln!(out, "{}  {about}", self.style.bold(&path))?;
        let Some(text) = &self.source.text else {
            self.note(
                "the file is not here: --source-path FOLDER or FROM=TO names another place",
                out,
            )?;
            self.heading(out)?;
            return self.without_text(out);
        };
        if self.source.is_newer {
            self.note(
                "the file was changed after the recording: lines may be off",
                out,
            )?;
        }
        if self.source.read_from != self.file.path {
            let from = format!("  from {}", escape(&self.source.read_from));
            writeln!(out, "{}", self.style.dim(&from))?;
        }
        self.heading(out)?;
        self.with_text(&text.lines().collect::<Vec<_>>(), out)
    }

    fn note(&self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.style.warning(&format!("  ! {text}")))
    }

    fn heading(&self, out: &mut dyn Write) -> io::Result<()> {
        let names = format!(
            "{:>NUMBER$} {:>NUMBER$}   {:>5}",
            short_title(self.metric),
            "allocated",
            "line"
        );
        writeln!(out, "{}", self.style.dim(&names))
    }

    /// The lines that are shown: all, or those with a part of the file's memory that matters.
    fn shown(&self) -> Vec<(u32, &SourceLine)> {
        let rank = |line: &SourceLine| {
            let others = Metric::TotalBytes.rank(&line.totals);
            (self.metric.rank(&line.totals), others)
        };
        let ranks = || self.file.lines.values().map(rank);
        let most = ranks().map(|it| it.0).max().unwrap_or(0);
        let most_others = ranks().map(|it| it.1).max().unwrap_or(0);
        let matters = |line: &SourceLine| {
            let (of_metric, others) = rank(line);
            of_metric.saturating_mul(LEAST_PART) >= most.max(1)
                || line.is_own && others.saturating_mul(LEAST_PART) >= most_others.max(1)
        };
        let lines = self.file.lines.iter().map(|(number, line)| (*number, line));
        lines
            .filter(|(_, line)| self.is_whole || matters(line))
            .collect()
    }

    fn without_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let shown = self.shown();
        for (number, line) in &shown {
            let words = format!("in {}", self.function(line));
            self.line(*number, Some(line), &words, out)?;
        }
        self.left(shown.len(), out)
    }

    fn with_text(&self, text: &[&str], out: &mut dyn Write) -> io::Result<()> {
        let shown = self.shown();
        let last = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let mut next = 1;
        for (number, line) in &shown {
            let first = number.saturating_sub(AROUND).max(next);
            if next > 1 && first > next {
                writeln!(out, "{}", self.style.dim(&format!("{:>31}", "⋮")))?;
            }
            self.plain(first..*number, text, out)?;
            let code = text.get(*number as usize - 1);
            match code {
                Some(code) => self.line(*number, Some(line), code, out)?,
                None => {
                    let function = self.function(line);
                    let words = format!("in {function}; the file ends at line {last}");
                    self.line(*number, Some(line), &words, out)?;
                }
            }
            next = number.saturating_add(1);
            let following = shown.iter().find(|(other, _)| other >= &next);
            let end = match following {
                Some((other, _)) => next.saturating_add(self.gap).min(*other),
                None => next.saturating_add(AROUND),
            };
            self.plain(next..end, text, out)?;
            next = end;
        }
        self.left(shown.len(), out)
    }

    /// The function of a line.
    fn function<'l>(&self, line: &'l SourceLine) -> Cow<'l, str> {
        self.input.for_people(&line.function)
    }

    /// Lines without memory.
    fn plain(
        &self,
        numbers: std::ops::Range<u32>,
        text: &[&str],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for number in numbers {
            if let Some(code) = text.get(number as usize - 1) {
                self.line(number, self.file.lines.get(&number), code, out)?;
            }
        }
        Ok(())
    }

    fn line(
        &self,
        number: u32,
        line: Option<&SourceLine>,
        code: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let value = |metric: Metric| {
            let value = line.map_or(0, |line| metric.of(&line.totals));
            if value == 0 {
                String::new()
            } else {
                metric.format(value)
            }
        };
        let numbers = format!(
            "{:>NUMBER$} {:>NUMBER$}",
            value(self.metric),
            value(Metric::TotalBytes)
        );
        let mark = if line.is_some_and(|line| line.is_own) {
            ">"
        } else {
            " "
        };
        let code = untabbed(code.trim_end());
        let code = escape(&code);
        let code: String = code.chars().take(self.room).collect();
        let place = format!("{mark} {number:>5}  ");
        let text = match line {
            Some(line) if line.is_own => {
                format!(
                    "{} {place}{}",
                    self.style.number(&numbers),
                    self.style.bold(&code)
                )
            }
            Some(_) => format!("{} {place}{code}", self.style.number(&numbers)),
            None => self.style.dim(&format!("{numbers} {place}{code}")),
        };
        writeln!(out, "{}", text.trim_end())
    }

    /// Says how many lines are left out.
    fn left(&self, shown: usize, out: &mut dyn Write) -> io::Result<()> {
        let left = self.file.lines.len() - shown;
        if left == 0 {
            return Ok(());
        }
        let words = format!(
            "  {} more {} with less than half a percent of these; --details shows them",
            count(left as u64),
            if left == 1 { "line" } else { "lines" }
        );
        writeln!(out, "{}", self.style.dim(&words))
    }
}

/// A heading of a column that is as narrow as a number.
fn short_title(metric: Metric) -> &'static str {
    match metric {
        Metric::LiveBytes => "live",
        Metric::LiveAllocations => "live blocks",
        Metric::LeftBytes => "left",
        Metric::LeftAllocations => "left blocks",
        Metric::TotalBytes => "total",
        Metric::TotalAllocations => "calls",
        Metric::PeakBytes => "at peak",
        Metric::Temporary => "temporary",
    }
}

fn untabbed(code: &str) -> String {
    let mut text = String::new();
    for letter in code.chars() {
        if letter == '\t' {
            let columns = TAB - text.chars().count() % TAB;
            text.extend(std::iter::repeat_n(' ', columns));
        } else {
            text.push(letter);
        }
    }
    text
}
