//! The zoo's table: printed as it runs, and written to docs/hostile.md.
//!
//! Part of hostile. It must not know how cases are run.

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::cases::Case;
use super::zoo::Zoo;
use crate::workspace;

/// What came of a case.
pub(super) struct Line {
    name: &'static str,
    what: &'static str,
    outcome: Result<String>,
    time: Duration,
    kib: u64,
}

impl Line {
    /// Runs a case.
    pub(super) fn of(case: &Case, zoo: &Zoo) -> Self {
        let (mut time, mut kib) = (Duration::ZERO, 0);
        let mut attempt = || {
            let cage = zoo.cage(case.name, case.seconds, case.mib)?;
            let outcome = (case.run)(&cage);
            (time, kib) = cage.spent();
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

`cargo xtask hostile` runs heaptrace, as root, on programs and files that were made to harm it, and wrote this page. It fails
where one does harm: where heaptrace dies, hangs, takes more memory than the case allows, runs or opens what it must not, ends
with a wrong status, prints an escape sequence, or loses something without saying so.

*Time* and *memory* are of the longest run and of the largest process of a case; a plain program's case is the first.

| Case | What is hostile | Outcome | Time | Memory |
|--|--|--|--:|--:|
";

/// Writes docs/hostile.md.
pub(super) fn write(lines: &[Line]) -> Result<()> {
    let mut text = HEAD.to_owned();
    for line in lines {
        let outcome = line.outcome().replace('|', "\\|").replace('\n', " ");
        // No folder of this machine is published.
        let outcome = outcome.replace(&*workspace::root().to_string_lossy(), ".");
        text.push_str(&format!(
            "| {} | {} | {outcome} | {:.1} s | {} MiB |\n",
            line.name,
            line.what,
            line.time.as_secs_f64(),
            line.kib >> 10
        ));
    }
    let path = workspace::root().join("docs/hostile.md");
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
