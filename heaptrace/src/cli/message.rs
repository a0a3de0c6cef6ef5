//! Messages on standard error besides errors: warnings, notes and summaries.
//!
//! Part of the command line. Every line is escaped. Printing never fails: if standard error is closed, the
//! message is dropped.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;

use crate::config::{RunConfig, Target};
use crate::text;

/// Prints a message.
pub(super) fn say(message: impl Display) {
    let mut stderr = io::stderr().lock();
    for line in message.to_string().lines() {
        let _ = writeln!(stderr, "{}", text::escape(line));
    }
}

/// Notes that a command runs as root under `sudo`, where the user may have meant `sudo` for heaptrace only.
pub(super) fn note_user(config: &RunConfig) {
    let caller = std::env::var("SUDO_USER").unwrap_or_default();
    if runs_as_root(config, &caller) && rustix::process::geteuid().is_root() {
        note(format_args!(
            "the command runs as root; use --as {caller} to run it as you"
        ));
    }
}

fn runs_as_root(config: &RunConfig, caller: &str) -> bool {
    let is_command = matches!(config.target, Target::Command(_));
    is_command && config.run_as.is_none() && !["", "root"].contains(&caller)
}

/// Prints a warning: something makes the output less complete or exact.
pub(super) fn warn(message: impl Display) {
    say(format_args!("heaptrace: warning: {message}"));
}

/// Prints a note.
pub(super) fn note(message: impl Display) {
    say(format_args!("heaptrace: note: {message}"));
}

/// Prints where an output was written, and what to do with it. Meant for terminals only: a script knows.
pub(super) fn wrote(path: &Path, next: impl Display) {
    if path.as_os_str() != "-" {
        say(format_args!("heaptrace: wrote {}; {next}", path.display()));
    }
}
