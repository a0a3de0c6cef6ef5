//! The live view: a table that is redrawn in place on a terminal, or reports one below another elsewhere.
//!
//! Stage: view. Decides the table's size and how it is written. `table.rs` makes its content, and `screen.rs`
//! positions it.

use std::io::{self, IsTerminal as _, Stdout};
use std::os::fd::AsFd;

use super::screen::{Layout, Screen, Size};
use super::table::Table;

/// The number of rows of an appended report if the user did not choose one.
const APPENDED_ROWS: usize = 10;

/// Standard output for the live view.
#[derive(Debug)]
pub struct Terminal {
    screen: Option<Screen<Stdout>>,
    top: Option<usize>,
}

impl Terminal {
    /// Standard output with at most `top` rows; redrawn in place if it is a capable terminal.
    pub fn stdout(layout: Layout, top: Option<usize>) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let in_place = io::stdout().is_terminal() && !dumb && size().is_some();
        Self {
            screen: in_place.then(|| Screen::new(io::stdout(), layout)),
            top,
        }
    }

    /// The number of rows that fit now.
    pub fn rows(&self) -> usize {
        let top = self.top.unwrap_or(usize::MAX);
        match (&self.screen, size()) {
            (Some(screen), Some(size)) => {
                top.min(screen.rows(size).saturating_sub(Table::HEAD_LINES))
            }
            _ => self.top.unwrap_or(APPENDED_ROWS),
        }
    }

    /// Shows the table.
    pub fn show(&mut self, table: &Table<'_>) -> io::Result<()> {
        match (&mut self.screen, size()) {
            (Some(screen), Some(size)) => screen.draw(size, &table.lines(Some(size.columns))),
            (Some(_), None) => Ok(()),
            (None, _) => append(&mut io::stdout().lock(), table),
        }
    }

    /// Restores the terminal, so that other text can follow.
    pub fn close(&mut self) -> io::Result<()> {
        self.screen.as_mut().map_or(Ok(()), Screen::close)
    }
}

fn append(out: &mut impl io::Write, table: &Table<'_>) -> io::Result<()> {
    let profile = table.profile;
    let now = profile
        .info
        .started_unix_ns
        .saturating_add(profile.duration_ns);
    // The report is written as one string, so that a reader of a pipe sees whole reports.
    let mut report = format!("{}\n", timestamp(now));
    for line in table.lines(None) {
        report.push_str(&line);
        report.push('\n');
    }
    report.push('\n');
    out.write_all(report.as_bytes())?;
    out.flush()
}

fn size() -> Option<Size> {
    size_of(&io::stdout())
}

/// The size of the terminal behind a stream; `None` if it is not a terminal.
pub fn size_of(stream: &impl AsFd) -> Option<Size> {
    let (terminal_size::Width(columns), terminal_size::Height(rows)) =
        terminal_size::terminal_size_of(stream)?;
    (columns > 0 && rows > 0).then_some(Size {
        columns: usize::from(columns),
        rows: usize::from(rows),
    })
}

/// A time as `2024-02-29 13:45:07 UTC`. UTC makes the output of several machines comparable.
fn timestamp(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that months have a regular pattern: 153 days in five.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        time / 3_600,
        time / 60 % 60,
        time % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Metric;
    use crate::profile::{Profile, RunInfo, Symbols};
    use crate::view::table::Rows;

    /// Check that dates around leap days and at the ends of years and centuries are correct.
    #[test]
    fn timestamps() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_214_307, "2024-02-29 13:45:07 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(timestamp(seconds * 1_000_000_000), text);
        }
        assert!(timestamp(u64::MAX).starts_with("2554-"));
    }

    /// Check that an appended report begins with its time, ends with an empty line, and is plain text.
    #[test]
    fn appended_reports() {
        let mut profile = Profile::new(RunInfo {
            started_unix_ns: 1_709_214_300_000_000_000,
            ..RunInfo::exact("--all")
        });
        profile.duration_ns = 7_000_000_000;
        let mut out = Vec::new();
        let table = Table {
            profile: &profile,
            symbols: &Symbols::default(),
            rows: Rows::Sites(&[]),
            metric: Metric::LiveBytes,
        };
        append(&mut out, &table).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("2024-02-29 13:45:07 UTC\nheaptrace, 7.00 s"));
        assert!(text.ends_with("\n\n") && !text.contains('\x1b'));
    }
}
