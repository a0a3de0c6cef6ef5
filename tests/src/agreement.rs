//! Compares the language frames of stacks with those that the runtime itself gives.
//!
//! Part of the harness. Must not know languages.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::record::Heaptrace;
use crate::report::{Report, Site};

/// Function, file and line of each language frame, innermost first.
pub type LanguageStack = Vec<(String, String, u32)>;

/// The program's allocations of interest have at least this many bytes.
const LEAST: u64 = 100_000;

/// Allocations and bytes, by stack.
type Amounts = BTreeMap<LanguageStack, (u64, u64)>;

/// How far the stacks of a run agree with the runtime's own.
#[derive(Debug)]
pub struct Agreement {
    /// The allocations that the program counted.
    pub allocations: u64,
    /// Those that the report has with the runtime's own stack.
    pub agreeing: u64,
    /// Those of which the stack of machine code is whole.
    pub complete: u64,
    /// Differing stacks, as text.
    pub differences: Vec<String>,
    /// The report.
    pub report: Report,
}

impl Agreement {
    /// The share of allocations that agree.
    pub fn share(&self) -> f64 {
        self.agreeing as f64 / self.allocations as f64
    }

    /// Fails if anything was lost, if the program did less than so many allocations, or if a smaller share of them than this agrees or has a
    /// whole stack.
    pub fn check(&self, allocations: u64, share: f64) -> Result<()> {
        self.report.check_nothing_lost()?;
        println!(
            "{} of {} agree, {} are complete",
            self.agreeing, self.allocations, self.complete
        );
        for difference in self.differences.iter().take(5) {
            println!("{difference}");
        }
        ensure!(
            self.allocations >= allocations,
            "the program did too little"
        );
        ensure!(self.share() >= share, "too few stacks agree");
        ensure!(self.complete as f64 >= share * self.allocations as f64);
        Ok(())
    }
}

/// Records a program that allocates from all kinds of code, so many times, and compares each stack. The command is that of the runtime and
/// of the script, which gets the path for its own stacks, and the number. `stack_of` gives the frames of a site that count, `comparable`
/// leaves out of a stack of the program's own what is left out there.
pub(crate) fn agreement(
    command: &[&OsStr],
    options: &[&str],
    times: u32,
    stack_of: impl Fn(&Site) -> Option<LanguageStack>,
    comparable: impl Fn(LanguageStack) -> LanguageStack,
) -> Result<Agreement> {
    let heaptrace = Heaptrace::tracing()?;
    let truth = heaptrace.path("truth.json");
    let times = times.to_string();
    let mut command = command.to_vec();
    command.extend([truth.as_os_str(), OsStr::new(&times)]);
    let recording = heaptrace.record(options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let expected = counted(&truth, comparable)?;
    let (found, complete) = reported(&recording.report, stack_of);
    let mut differences = Vec::new();
    let mut agreeing = 0;
    for (stack, amount) in &expected {
        match found.get(stack) {
            Some(other) if other == amount => agreeing += amount.0,
            other => {
                // Each allocation that is missing, or too many, disagrees. If as many have other sizes, all do.
                let apart = other.map_or(amount.0, |it| it.0.abs_diff(amount.0));
                let apart = if apart == 0 { amount.0 } else { apart };
                agreeing += amount.0.saturating_sub(apart);
                differences.push(format!("{amount:?} there, {other:?} here: {stack:?}"));
            }
        }
    }
    for (stack, amount) in &found {
        if !expected.contains_key(stack) {
            differences.push(format!("{amount:?} here alone: {stack:?}"));
        }
    }
    Ok(Agreement {
        allocations: expected.values().map(|(count, _)| count).sum(),
        agreeing,
        complete,
        differences,
        report: recording.report,
    })
}

/// The allocations as the program counted them.
fn counted(path: &Path, comparable: impl Fn(LanguageStack) -> LanguageStack) -> Result<Amounts> {
    let text = fs::read_to_string(path).context("the program has not written its counts")?;
    let counted: Vec<(LanguageStack, u64, u64)> = serde_json::from_str(&text)?;
    let mut amounts = Amounts::new();
    for (stack, count, bytes) in counted {
        let amount = amounts.entry(comparable(stack)).or_default();
        amount.0 += count;
        amount.1 += bytes;
    }
    Ok(amounts)
}

/// The allocations as the report has them, and how many have a whole stack.
fn reported(report: &Report, stack_of: impl Fn(&Site) -> Option<LanguageStack>) -> (Amounts, u64) {
    let mut found = Amounts::new();
    let mut complete = 0;
    // The runtime itself allocates there, too, but no large blocks.
    let is_large = |site: &&Site| site.totals.allocated_bytes >= LEAST * site.totals.allocations;
    for site in report.sites.iter().filter(is_large) {
        let Some(stack) = stack_of(site) else {
            continue;
        };
        let amount = found.entry(stack).or_default();
        amount.0 += site.totals.allocations;
        amount.1 += site.totals.allocated_bytes;
        if site.stack_end == "complete" {
            complete += site.totals.allocations;
        }
    }
    (found, complete)
}

/// The frames of a site in a language.
pub(crate) fn language_stack(site: &Site, language: &str) -> LanguageStack {
    let frames = site.stack.iter().filter(|frame| frame.language == language);
    frames
        .map(|frame| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let line = frame.line.unwrap_or(0);
            (text(&frame.function), text(&frame.file), line)
        })
        .collect()
}
