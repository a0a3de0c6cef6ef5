//! Leaks for programs: JSON, schema 1.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use std::io::Write;

use serde::Serialize;

use super::find::{Leaks, Left};
use super::generations_json::GenerationsJson;
use super::growth::Growth;
use super::unreachable_json::UnreachableJson;
use crate::output::error::OutputError;
use crate::output::json::{Head, Remarks, Stack};
use crate::output::json_escaping::write_line;
use crate::output::label::kind_name;
use crate::output::report_input::ReportInput;

/// Writes what was found as one line, at most `top` of each list.
pub fn write_leaks_json(
    input: &ReportInput<'_>,
    leaks: &Leaks,
    top: usize,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let growing = |list: &[Growth]| -> Vec<_> {
        let list = list.iter().take(top);
        list.map(|it| Growing::new(input, it)).collect()
    };
    let report = Report {
        head: Head::of(input),
        remarks: Remarks::of(input),
        from_ns: leaks.from_ns,
        until_ns: leaks.until_ns,
        steps: leaks.steps,
        long_enough: leaks.is_long_enough,
        changed_sites: leaks.changed,
        growing: growing(&leaks.growing),
        unsure: growing(&leaks.unsure),
        left: leaks
            .left
            .iter()
            .take(top)
            .map(|it| Remaining::new(input, it))
            .collect(),
        generations: GenerationsJson::new(input, &leaks.generations, top),
        unreachable: UnreachableJson::new(input, &leaks.unreachable, top),
        suppressed: leaks
            .suppressed
            .iter()
            .map(|it| Suppressed {
                pattern: &it.pattern,
                sites: it.sites,
                bytes: it.bytes,
            })
            .collect(),
    };
    Ok(write_line(&report, out)?)
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    #[serde(flatten)]
    remarks: Remarks<'a>,
    /// The time that was looked at.
    from_ns: u64,
    until_ns: u64,
    /// The parts that it was divided into. If there are too few, nothing can be growing.
    steps: usize,
    long_enough: bool,
    /// Sites that changed in this time.
    changed_sites: usize,
    growing: Vec<Growing<'a>>,
    unsure: Vec<Growing<'a>>,
    left: Vec<Remaining<'a>>,
    /// Present if the run has marks.
    #[serde(flatten)]
    generations: Option<GenerationsJson<'a>>,
    /// Present if blocks were looked for that nothing points to.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable: Option<UnreachableJson<'a>>,
    suppressed: Vec<Suppressed<'a>>,
}

#[derive(Serialize)]
struct Growing<'a> {
    pid: u32,
    command: &'a str,
    kind: &'static str,
    live_bytes: u64,
    live_allocations: u64,
    grew_bytes: u64,
    bytes_per_second: f64,
    bytes_per_second_low: f64,
    bytes_per_second_high: f64,
    /// One minus the probability that this is chance.
    confidence: f64,
    rose_in_steps: usize,
    /// Since `from_ns`.
    allocated_bytes: u64,
    freed_bytes: u64,
    ever_freed: bool,
    survival: Survival,
    floors: Vec<Floor>,
    stack: Stack<'a>,
}

/// Of what was live at a moment, at least so much is live at the end.
#[derive(Serialize)]
struct Survival {
    from_ns: u64,
    live_bytes: u64,
    at_least_bytes: u64,
}

/// The least that was live in a step.
#[derive(Serialize)]
struct Floor {
    at_ns: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Remaining<'a> {
    pid: u32,
    command: &'a str,
    kind: &'static str,
    left_bytes: u64,
    left_allocations: u64,
    /// Absent in an exact run.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_bytes_error: Option<u64>,
    stack: Stack<'a>,
}

#[derive(Serialize)]
struct Suppressed<'a> {
    pattern: &'a str,
    sites: u64,
    bytes: u64,
}

impl<'a> Growing<'a> {
    fn new(input: &'a ReportInput<'a>, growth: &Growth) -> Self {
        let (pid, command) = input.pid_and_command(growth.process);
        let [middle, low, high] = growth.bytes_per_second;
        Self {
            pid,
            command,
            kind: kind_name(growth.kind),
            live_bytes: growth.totals.live_bytes,
            live_allocations: growth.totals.live_allocations,
            grew_bytes: growth.grew,
            bytes_per_second: middle,
            bytes_per_second_low: low,
            bytes_per_second_high: high,
            confidence: 1.0 - growth.chance,
            rose_in_steps: growth.rose,
            allocated_bytes: growth.allocated,
            freed_bytes: growth.freed,
            ever_freed: growth.ever_freed,
            survival: Survival {
                from_ns: growth.survival.from_ns,
                live_bytes: growth.survival.live,
                at_least_bytes: growth.survival.at_least,
            },
            floors: growth
                .floors
                .iter()
                .map(|(at_ns, bytes)| Floor {
                    at_ns: *at_ns,
                    bytes: *bytes,
                })
                .collect(),
            stack: Stack(input, growth.stack),
        }
    }
}

impl<'a> Remaining<'a> {
    fn new(input: &'a ReportInput<'a>, left: &Left) -> Self {
        let (pid, command) = input.pid_and_command(left.process);
        let error = left.totals.errors.left_bytes;
        Self {
            pid,
            command,
            kind: kind_name(left.kind),
            left_bytes: left.totals.left_bytes,
            left_allocations: left.totals.left_allocations,
            left_bytes_error: input.profile.info.mode.is_sampled().then_some(error),
            stack: Stack(input, left.stack),
        }
    }
}
