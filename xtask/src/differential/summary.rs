//! What was run so far, as lines of progress and as the result at the end.
//!
//! Part of differential.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use super::experiment::Outcome;

/// The time between two lines of progress.
const QUIET: Duration = Duration::from_secs(30);

pub(super) struct Summary {
    began: Instant,
    printed: Instant,
    programs: u64,
    runs: u64,
    processes: u64,
    events: u64,
    cut: u64,
    variants: BTreeMap<String, u64>,
    combinations: BTreeSet<Vec<String>>,
    differing: Vec<u64>,
}

impl Summary {
    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            printed: Instant::now(),
            programs: 0,
            runs: 0,
            processes: 0,
            events: 0,
            cut: 0,
            variants: BTreeMap::new(),
            combinations: BTreeSet::new(),
            differing: Vec::new(),
        }
    }

    pub(super) fn programs(&self) -> u64 {
        self.programs
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn is_clean(&self) -> bool {
        self.differing.is_empty()
    }

    /// Adds what came of a seed, and prints it if it differs.
    pub(super) fn add(&mut self, seed: u64, outcome: Outcome, took: Duration) {
        self.programs += 1;
        self.runs += outcome.runs;
        self.processes += outcome.processes;
        self.events += outcome.events;
        self.cut += outcome.cut;
        for text in &outcome.differing {
            println!("\n{text}\n");
        }
        if !outcome.differing.is_empty() {
            self.differing.push(seed);
        }
        for variant in &outcome.variants {
            *self.variants.entry(variant.clone()).or_default() += 1;
        }
        self.combinations.insert(outcome.variants);
        if self.printed.elapsed() > QUIET {
            self.printed = Instant::now();
            println!(
                "[{:>5.0} s] {}; the last took {:.1} s",
                self.elapsed().as_secs_f64(),
                self.line(),
                took.as_secs_f64()
            );
        }
    }

    fn line(&self) -> String {
        format!(
            "{} programs, {} runs, {} processes, {} events, {} differ",
            self.programs,
            self.runs,
            self.processes,
            self.events,
            self.differing.len()
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n==> variants")?;
        for (variant, count) in &self.variants {
            writeln!(f, "    {count:>6}  {variant}")?;
        }
        if !self.differing.is_empty() {
            let seeds: Vec<String> = self.differing.iter().map(u64::to_string).collect();
            writeln!(f, "\n==> seeds that differ: {}", seeds.join(" "))?;
        }
        write!(
            f,
            "\ndifferential: {}, {} combinations of variants, {} stacks cut by their time, in {:.0} s",
            self.line(),
            self.combinations.len(),
            self.cut,
            self.elapsed().as_secs_f64()
        )
    }
}
