//! Where log lines go: standard error, at the level that `-v` asks for.
//!
//! Part of the command line, no stage of the flow. The stages say things through `tracing`, the kernel
//! program and some libraries through `log`; both end here.

use std::io;

use tracing::Level;

use super::Color;

/// Begins to show log lines.
pub(super) fn start(verbosity: u8, color: Color) {
    let level = match verbosity {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    // Also takes what comes through `log`. Fails where somebody else who uses this library has set up
    // logging before: then theirs is the one to use.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(color.for_stream(&io::stderr()))
        .with_target(verbosity > 1)
        .without_time()
        .try_init();
}
