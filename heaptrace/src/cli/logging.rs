//! Log lines: printed on standard error, at the level that `-v` sets.
//!
//! Part of the command line. The stages log through `tracing`, the kernel program and some libraries through
//! `log`; both are printed here.

use std::io;

use tracing::Level;

use super::invocation::Color;

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
        .with_writer(io::stderr)
        .with_ansi(color.for_stream(&io::stderr()))
        .with_target(verbosity > 1)
        .without_time()
        .try_init();
}
