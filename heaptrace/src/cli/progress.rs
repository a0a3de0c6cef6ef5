//! A line on the terminal that says what takes so long.
//!
//! Part of the command line. The line is on standard error, and only if that is a terminal. It is removed at the end. Must
//! not know the work.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Stderr, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::session::Progress;
use crate::text;

/// Shorter work shows no line.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time between two changes of the line.
const PAUSE: Duration = Duration::from_millis(100);

/// The line, which is empty at first.
pub(super) struct ProgressLine<W: Write = Stderr> {
    /// The terminal; `None` if there is none.
    terminal: Option<W>,
    is_shown: bool,
}

impl ProgressLine {
    /// A line on standard error.
    pub(super) fn new() -> Self {
        let stderr = io::stderr();
        Self {
            terminal: stderr.is_terminal().then_some(stderr),
            is_shown: false,
        }
    }
}

impl<W: Write> ProgressLine<W> {
    /// Replaces the line.
    pub(super) fn show(&mut self, words: impl Display) {
        if let Some(terminal) = &mut self.terminal {
            self.is_shown = true;
            let _ = write!(terminal, "\r{words}\x1b[K");
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        if let Some(terminal) = &mut self.terminal
            && std::mem::take(&mut self.is_shown)
        {
            let _ = write!(terminal, "\r\x1b[K");
        }
    }
}

impl<W: Write> Drop for ProgressLine<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Does work that counts what it has done, and shows the count if that takes longer than a moment.
pub(super) fn counted<T>(what: &str, all: usize, work: impl FnOnce(&AtomicUsize) -> T) -> T {
    counted_on(ProgressLine::new(), what, all, work)
}

fn counted_on<T>(
    mut line: ProgressLine<impl Write + Send>,
    what: &str,
    all: usize,
    work: impl FnOnce(&AtomicUsize) -> T,
) -> T {
    let done = AtomicUsize::new(0);
    if line.terminal.is_none() {
        return work(&done);
    }
    let over = Over::default();
    thread::scope(|scope| {
        // Without a thread there is no line.
        let _ = thread::Builder::new().spawn_scoped(scope, || {
            let mut patience = PATIENCE;
            while !over.wait(patience) {
                patience = PAUSE;
                line.show(counted_words(what, done.load(Ordering::Relaxed), all));
            }
            line.clear();
        });
        // Also after a panic, or the thread would never end.
        let _ends = End(&over);
        work(&done)
    })
}

/// Whether work is over.
#[derive(Default)]
struct Over(Mutex<bool>, Condvar);

impl Over {
    /// Waits for the end of the work; returns whether it came in time.
    fn wait(&self, time: Duration) -> bool {
        let Self(is_over, changed) = self;
        let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Ends the work when it is dropped.
struct End<'a>(&'a Over);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let Over(is_over, changed) = self.0;
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

/// What a run is doing before its first update and after its last.
pub(super) fn words(progress: Progress) -> String {
    match progress {
        Progress::Searching { done, all } => {
            let words = counted_words("Looking for allocators", done, all);
            words + plural(all, " process", " processes")
        }
        Progress::ReadingTables => "Reading unwind tables…".to_owned(),
        Progress::Attaching { done, all } => {
            counted_words("Attaching", done, all) + plural(all, " file", " files")
        }
        Progress::Detaching => "Removing probes…".to_owned(),
    }
}

fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// `Writing names… 1,234 of 5,678`.
fn counted_words(what: &str, done: usize, all: usize) -> String {
    let done = text::count(done as u64);
    format!("{what}… {done} of {}", text::count(all as u64))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A terminal that the test reads.
    struct Sent(mpsc::Sender<String>);

    impl Write for Sent {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Check that work that takes long shows what it has done, that the line is removed, and that the result is returned.
    #[test]
    fn long_work_shows_its_progress() {
        let (sender, shown) = mpsc::channel();
        let line = ProgressLine {
            terminal: Some(Sent(sender)),
            is_shown: false,
        };
        let mut seen = String::new();
        let result = counted_on(line, "Writing names", 5678, |done| {
            done.store(1234, Ordering::Relaxed);
            while !seen.contains("Writing names… 1,234 of 5,678") {
                seen += &shown.recv().unwrap();
            }
            7
        });
        assert_eq!(result, 7);
        seen.extend(shown.iter());
        assert!(seen.ends_with("\r\x1b[K"), "{seen:?}");
    }

    /// Check that work that is over at once shows nothing, and that a panic does not wait for ever.
    #[test]
    fn short_work_shows_nothing() {
        let (sender, shown) = mpsc::channel();
        let line = || ProgressLine {
            terminal: Some(Sent(sender.clone())),
            is_shown: false,
        };
        assert_eq!(counted_on(line(), "Counting", 1, |_| 1), 1);
        assert_eq!(shown.try_recv(), Err(mpsc::TryRecvError::Empty));
        let work = || counted_on(line(), "Counting", 1, |_| -> i32 { panic!("as intended") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
    }

    /// Check that the steps of a run are in words, also for a single file.
    #[test]
    fn steps_are_in_words() {
        for (progress, expected) in [
            (
                Progress::Attaching { done: 3, all: 7 },
                "Attaching… 3 of 7 files",
            ),
            (
                Progress::Attaching { done: 0, all: 1 },
                "Attaching… 0 of 1 file",
            ),
            (
                Progress::Searching { done: 8, all: 340 },
                "Looking for allocators… 8 of 340 processes",
            ),
        ] {
            assert_eq!(words(progress), expected);
        }
    }
}
