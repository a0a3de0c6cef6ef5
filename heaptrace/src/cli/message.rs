//! What heaptrace says on standard error besides errors: warnings, notes and closing words.
//!
//! Part of the command line, no stage of the flow. Every line is escaped, and none can fail: where
//! standard error is closed, nobody wants to hear it.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;

use crate::config::{RunConfig, Target};
use crate::text;

/// Says something.
pub(super) fn say(message: impl Display) {
    let mut stderr = io::stderr().lock();
    for line in message.to_string().lines() {
        let _ = writeln!(stderr, "{}", text::escape(line));
    }
}

/// Says that a command runs as root, to whom it may be news: `sudo` was meant for heaptrace.
pub(super) fn note_user(config: &RunConfig) {
    let caller = std::env::var("SUDO_USER").unwrap_or_default();
    if runs_as_root(config, &caller) && rustix::process::geteuid().is_root() {
        note(format_args!(
            "the command runs as root; --as {caller} runs it as you"
        ));
    }
}

fn runs_as_root(config: &RunConfig, caller: &str) -> bool {
    let is_command = matches!(config.target, Target::Command(_));
    is_command && config.run_as.is_none() && !["", "root"].contains(&caller)
}

/// Says something that limits what the output is worth.
pub(super) fn warn(message: impl Display) {
    say(format_args!("heaptrace: warning: {message}"));
}

/// Says something that is good to know.
pub(super) fn note(message: impl Display) {
    say(format_args!("heaptrace: note: {message}"));
}

/// Says where an output went and what it is good for: for a terminal, as a script knows.
pub(super) fn wrote(path: &Path, next: impl Display) {
    if path.as_os_str() != "-" {
        say(format_args!("heaptrace: wrote {}; {next}", path.display()));
    }
}
