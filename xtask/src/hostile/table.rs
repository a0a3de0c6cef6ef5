//! The table of the cases: printed during the run, and written to docs/hostile.md.
//!
//! Part of hostile. It must not know how cases are run.

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::cases::{CASES, Case};
use super::suite::Suite;
use crate::workspace;

/// The result of a case.
pub(super) struct Line {
    name: &'static str,
    what: &'static str,
    outcome: Result<String>,
    time: Duration,
    kib: u64,
}

impl Line {
    /// Runs a case.
    pub(super) fn of(case: &Case, suite: &Suite) -> Self {
        let (mut time, mut kib) = (Duration::ZERO, 0);
        let mut attempt = || {
            let case_run = suite.case_run(case.name, case.seconds, case.mib)?;
            let outcome = (case.run)(&case_run);
            (time, kib) = case_run.spent();
            outcome
        };
        let outcome = attempt();
        Self {
            name: case.name,
            what: case.what,
            outcome,
            time,
            kib,
        }
    }

    pub(super) fn is_harmful(&self) -> bool {
        self.outcome.is_err()
    }

    fn row(&self) -> String {
        let outcome = self.outcome().replace('|', "\\|").replace('\n', " ");
        // Paths of this machine are not published.
        let outcome = outcome.replace(&*workspace::root().to_string_lossy(), ".");
        format!(
            "| {} | {} | {outcome} | {:.1} s | {} MiB |",
            self.name,
            self.what,
            self.time.as_secs_f64(),
            self.kib >> 10
        )
    }

    fn outcome(&self) -> String {
        match &self.outcome {
            Ok(outcome) => outcome.clone(),
            Err(error) => format!("HARMFUL: {error:#}"),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<28} {:>6.2} s {:>5} MiB  {}",
            self.name,
            self.time.as_secs_f64(),
            self.kib >> 10,
            self.outcome()
        )
    }
}

const HEAD: &str = "\
# Hostile targets

`cargo xtask hostile` writes this page. It runs heaptrace, as root, on programs and files that are made to harm it. It fails if one
of them does harm: heaptrace dies, hangs, uses more memory than the case allows, executes or opens a forbidden file, ends with a wrong
status, prints an escape sequence, or loses events without reporting it.

*Time* is the longest run of a case, and *memory* is the peak of its largest process. The first case is a plain program, for comparison.
Each row shows the last run of its case: `cargo xtask hostile FILTER` replaces the rows of the cases that it runs.

| Case | What is hostile | Outcome | Time | Memory |
|--|--|--|--:|--:|
";

/// Writes docs/hostile.md with the new rows, and keeps the rows of the other cases.
pub(super) fn write(lines: &[Line]) -> Result<()> {
    let path = workspace::root().join("docs/hostile.md");
    let old = fs::read_to_string(&path).unwrap_or_default();
    let mut text = HEAD.to_owned();
    for case in CASES {
        let head = format!("| {} |", case.name);
        let new = lines.iter().find(|line| line.name == case.name);
        let kept = old.lines().find(|line| line.starts_with(&head));
        match (new, kept) {
            (Some(line), _) => text.push_str(&line.row()),
            (None, Some(row)) => text.push_str(row),
            (None, None) => continue,
        }
        text.push('\n');
    }
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
