//! The live view: a table that is redrawn in place on a terminal, or reports one below another elsewhere.
//!
//! Stage: view. Decides the table's size and how it is written, and reads keys. `table.rs` makes its content, and `screen.rs`
//! positions it. The terminal is restored when this is dropped.

use std::io::{self, IsTerminal as _, Stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::foot::{self, Foot};
use super::keys::{self, Key};
use super::line::Line;
use super::screen::{Layout, Screen, Size};
use super::table::Table;
use crate::tty::Restorer;

/// The number of rows of an appended report if the user did not choose one.
const APPENDED_ROWS: usize = 10;

/// How a terminal is used.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// The part that is drawn.
    pub layout: Layout,
    /// Most rows below the head, if the user set a number.
    pub top: Option<usize>,
    /// Whether keys may be read.
    pub keys: bool,
    /// Whether colours may be used.
    pub color: bool,
}

/// Standard output for the live view.
#[derive(Debug)]
pub struct Terminal {
    place: Option<Place>,
    top: Option<usize>,
}

/// The place of a table that is redrawn.
#[derive(Debug)]
struct Place {
    screen: Screen<Stdout>,
    restorer: Arc<Restorer>,
    color: bool,
}

impl Terminal {
    /// Standard output; redrawn in place if it is a capable terminal.
    pub fn stdout(how: Use) -> Self {
        Self {
            place: Place::new(how),
            top: how.top,
        }
    }

    /// Whether the table is redrawn in place.
    pub fn is_in_place(&self) -> bool {
        self.place.is_some()
    }

    /// Restores the terminal.
    pub fn restorer(&self) -> Option<&Arc<Restorer>> {
        self.place.as_ref().map(|place| &place.restorer)
    }

    /// The number of rows that fit now.
    pub fn rows(&self) -> usize {
        let top = self.top.unwrap_or(usize::MAX);
        match (&self.place, size()) {
            (Some(place), Some(size)) => {
                let rows = place.screen.rows(size);
                let foot = usize::from(place.has_keys());
                top.min(rows.saturating_sub(Table::LEAST_HEAD_LINES + foot))
            }
            _ => self.top.unwrap_or(APPENDED_ROWS),
        }
    }

    /// Shows the table. On a terminal whose shell has put this process into the background, nothing is shown.
    pub fn show(&mut self, table: &Table<'_>, foot: &Foot) -> io::Result<()> {
        let Some(place) = &mut self.place else {
            return append(&mut io::stdout().lock(), table, foot);
        };
        match size() {
            Some(size) => place.draw(size, table.lines(Some(size.columns)), foot),
            None => Ok(()),
        }
    }

    /// Whether the terminal shows something else than what was drawn last, or in another size.
    pub fn is_stale(&self) -> bool {
        self.place
            .as_ref()
            .is_some_and(|it| it.screen.drawn() != size() && it.restorer.is_in_foreground())
    }

    /// A descriptor that is readable when keys were pressed, if keys are read.
    pub fn input(&self) -> io::Result<Option<OwnedFd>> {
        let keys = self.restorer().and_then(|it| it.keys());
        keys.map(|keys| keys.try_clone_to_owned()).transpose()
    }

    /// The keys that were pressed since the last call.
    pub fn pressed(&mut self) -> Vec<Key> {
        let mut bytes = [0; 256];
        let restorer = self.restorer();
        // Otherwise a read waits, or stops the process.
        let restorer = restorer.filter(|it| it.is_changed() && it.is_in_foreground());
        let Some(terminal) = restorer.and_then(|it| it.keys()) else {
            return Vec::new();
        };
        // A terminal that is gone sends no keys, and a signal that ends the run.
        let count = rustix::io::read(terminal, &mut bytes).unwrap_or(0);
        keys::keys(bytes.get(..count).unwrap_or_default())
    }

    /// Has everything drawn anew.
    pub fn forget(&mut self) {
        if let Some(place) = &mut self.place {
            place.screen.forget();
        }
    }

    /// Restores the terminal, so that other text can follow.
    pub fn close(&mut self) -> io::Result<()> {
        self.place.as_mut().map_or(Ok(()), Place::close)
    }

    /// Restores the terminal, and stops this process until its shell continues it.
    pub fn suspend(&mut self) -> io::Result<()> {
        self.close()?;
        // The whole process group, as the kernel does it: `sudo` above this process has to stop, too.
        Ok(rustix::process::kill_current_process_group(
            rustix::process::Signal::TSTP,
        )?)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = self.close();
    }
}

impl Place {
    fn new(how: Use) -> Option<Self> {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if !stdout.is_terminal() || dumb || size().is_none() {
            return None;
        }
        let keys = (how.keys && stdin.is_terminal()).then(|| stdin.as_fd());
        let restorer = Restorer::new(&stdout, keys, how.layout.undo()).ok()?;
        Some(Self {
            screen: Screen::new(io::stdout(), how.layout),
            restorer: Arc::new(restorer),
            color: how.color,
        })
    }

    fn has_keys(&self) -> bool {
        self.restorer.keys().is_some()
    }

    fn draw(&mut self, size: Size, mut lines: Vec<Line>, foot: &Foot) -> io::Result<()> {
        if !self.restorer.is_in_foreground() {
            return Ok(());
        }
        // Each time: a shell may have changed the terminal while this process was stopped.
        self.restorer.enter()?;
        if self.has_keys() {
            foot::add(&mut lines, foot, size.columns, self.screen.rows(size));
        } else if !foot.notice.is_empty() {
            foot::add_notice(&mut lines, foot, size.columns, self.screen.rows(size));
        }
        let text = |line: &Line| {
            if self.color {
                line.colored()
            } else {
                line.text.clone()
            }
        };
        let lines: Vec<String> = lines.iter().map(text).collect();
        self.screen.draw(size, &lines)
    }

    fn close(&mut self) -> io::Result<()> {
        if !self.restorer.is_changed() {
            self.screen.forget();
            return Ok(());
        }
        let closed = self.screen.close();
        self.restorer.leave()?;
        closed
    }
}

fn append(out: &mut impl io::Write, table: &Table<'_>, foot: &Foot) -> io::Result<()> {
    let profile = table.input.profile;
    let now = profile
        .info
        .started_unix_ns
        .saturating_add(profile.duration_ns);
    // The report is written as one string, so that a reader of a pipe sees whole reports.
    let mut report = format!("{}\n", timestamp(now));
    let lines = table.lines(None);
    let lines = lines.iter().map(|line| &line.text);
    for line in lines.chain(foot.notice.first()) {
        report.push_str(line);
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
    use crate::output::{Metric, ReportInput};
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
        let symbols = Symbols::default();
        let table = Table {
            input: ReportInput::new(&profile, &symbols),
            rows: Rows::Sites(&[]),
            metric: Metric::LiveBytes,
        };
        append(&mut out, &table, &Foot::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("2024-02-29 13:45:07 UTC\nheaptrace, 7.00 s"));
        assert!(text.ends_with("\n\n") && !text.contains('\x1b'));
    }
}
