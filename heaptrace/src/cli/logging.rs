//! Log lines: printed on standard error, at the level that `-v` sets.
//!
//! Part of the command line. The stages log through `tracing`, the kernel program and some libraries through
//! `log`; both are printed here. While the live table has the whole terminal, lines are held back.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};

use tracing::Level;

use super::invocation::Color;

/// Most bytes of log lines that are held back; later ones are dropped.
const MOST_HELD: usize = 1 << 16;

/// The lines that are held back, if lines are.
static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Starts to print log lines.
pub(super) fn start(verbosity: u8, color: Color) {
    let level = match verbosity {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    // Also takes lines from `log`. Fails if a program that uses this library has set up its own logging
    // before; then that one is used.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| Log)
        .with_ansi(color.for_stream(&io::stderr()))
        .with_target(verbosity > 1)
        .without_time()
        .try_init();
}

/// Holds lines back until [`release`], if they would be written to a terminal.
pub(super) fn hold() {
    if io::stderr().is_terminal() {
        held(|held| _ = held.get_or_insert_default());
    }
}

/// Prints the lines that were held back. Later lines are printed at once.
pub(super) fn release() {
    let lines = held(Option::take).unwrap_or_default();
    // If standard error is closed, the lines are dropped.
    let _ = io::stderr().write_all(&lines);
}

fn held<T>(with: impl FnOnce(&mut Option<Vec<u8>>) -> T) -> T {
    with(&mut HELD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Standard error, or the lines that are held back.
struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let is_held = held(|held| {
            let held = held.as_mut()?;
            if held.len() + line.len() <= MOST_HELD {
                held.extend_from_slice(line);
            }
            Some(())
        });
        match is_held {
            Some(()) => Ok(line.len()),
            None => io::stderr().write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
