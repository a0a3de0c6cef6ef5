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

/// Notes that processes that are not selected pay for the probes, too, where the user may think that they don't.
pub(super) fn note_selection(config: &RunConfig) {
    if let Some(text) = selection_note(config) {
        note(text);
    }
}

fn selection_note(config: &RunConfig) -> Option<String> {
    let selection = &config.selection;
    let options = [
        ("--comm", !selection.names.is_empty()),
        ("--exclude", !selection.excluded.is_empty()),
        ("--cgroup", !selection.cgroups.is_empty()),
        ("--user", !selection.users.is_empty()),
    ];
    let given: Vec<_> = options.iter().filter(|it| it.1).map(|it| it.0).collect();
    if given.is_empty() {
        return None;
    }
    let limit = match config.max_overhead {
        Some(limit) => format!(", up to {} % of its time", f64::from(limit) / 100.0),
        None => String::new(),
    };
    Some(format!(
        "{} selects what is recorded, not what is probed: every process of the machine pays about a microsecond \
         for each call of an allocator{limit}; only --pid spares the others",
        given.join(" with ")
    ))
}

/// Prints a warning: something makes the output less complete or exact.
pub(super) fn warn(message: impl Display) {
    say(format_args!("heaptrace: warning: {message}"));
}

/// Prints a note.
pub(super) fn note(message: impl Display) {
    say(format_args!("heaptrace: note: {message}"));
}

/// Prints where a file was written, and what to do with it. Meant for terminals only: a script knows.
pub(super) fn wrote(path: &Path, next: impl Display) {
    say(format_args!("heaptrace: wrote {}; {next}", path.display()));
}
