//! Generations for programs.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use serde::Serialize;

use super::generations::{Born, Generations, Survivor};
use crate::join::{Mark, MarkCause, Totals};
use crate::output::counters::Counters;
use crate::output::interval::Intervals;
use crate::output::json::Stack;
use crate::output::label::kind_name;
use crate::output::report_input::ReportInput;

/// What was allocated between marks.
#[derive(Serialize)]
pub(super) struct GenerationsJson<'a> {
    marks: Vec<MarkJson>,
    /// In the order of time. The first is what was allocated before the first mark, and has no number.
    generations: Vec<BornJson>,
    /// Sites with memory that survived a mark, the largest first; the first hundred at most.
    survivors: Vec<SurvivorJson<'a>>,
    /// How many such sites there are.
    surviving_sites: usize,
    /// How many marks and allocations found no room: they are in the first generation, and missing in the others.
    without_room: u64,
}

#[derive(Serialize)]
struct MarkJson {
    number: u32,
    at_ns: u64,
    cause: &'static str,
}

#[derive(Serialize)]
struct BornJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<u32>,
    from_ns: u64,
    until_ns: u64,
    /// The age of the youngest and of the oldest of its blocks, at the end of the recording.
    youngest_ns: u64,
    oldest_ns: u64,
    totals: Counters,
    /// What was not freed at later marks.
    survived: Vec<SurvivedJson>,
}

#[derive(Serialize)]
struct SurvivedJson {
    mark: u32,
    bytes: u64,
}

#[derive(Serialize)]
struct SurvivorJson<'a> {
    pid: u32,
    command: &'a str,
    kind: &'static str,
    /// Of what was allocated between the first mark and the last.
    totals: Counters,
    /// The largest age that a live block of it may have, of those that were allocated since the first mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ns: Option<u64>,
    generations: Vec<BornJson>,
    stack: Stack<'a>,
}

impl<'a> GenerationsJson<'a> {
    /// `None` without marks.
    pub(super) fn new(
        input: &'a ReportInput<'a>,
        generations: &Generations,
        top: usize,
    ) -> Option<Self> {
        let profile = input.profile;
        if generations.all.is_empty() {
            return None;
        }
        let intervals = &Intervals::of(profile);
        let born = |it: &Born| BornJson::new(it, profile.duration_ns, intervals);
        let survivors = generations.survivors.iter().take(top);
        Some(Self {
            marks: profile.marks.iter().map(MarkJson::new).collect(),
            generations: generations.all.iter().map(born).collect(),
            survivors: survivors
                .map(|it| SurvivorJson::new(input, it, intervals))
                .collect(),
            surviving_sites: generations.surviving,
            without_room: generations.without_room,
        })
    }
}

impl MarkJson {
    fn new(mark: &Mark) -> Self {
        Self {
            number: mark.number,
            at_ns: mark.at_ns,
            cause: match mark.cause {
                MarkCause::Timer => "timer",
                MarkCause::Signal => "signal",
                MarkCause::Key => "key",
                MarkCause::Exceeded => "exceeded",
            },
        }
    }
}

impl BornJson {
    fn new(born: &Born, now_ns: u64, intervals: &Intervals) -> Self {
        let from_ns = born.mark.map_or(0, |it| it.at_ns);
        Self {
            mark: born.mark.map(|it| it.number),
            from_ns,
            until_ns: born.until_ns,
            youngest_ns: now_ns.saturating_sub(born.until_ns),
            oldest_ns: now_ns.saturating_sub(from_ns),
            totals: counters(&born.totals, intervals),
            survived: born
                .survived
                .iter()
                .map(|(mark, bytes)| SurvivedJson {
                    mark: mark.number,
                    bytes: *bytes,
                })
                .collect(),
        }
    }
}

impl<'a> SurvivorJson<'a> {
    fn new(input: &'a ReportInput<'a>, survivor: &Survivor, intervals: &Intervals) -> Self {
        let (pid, command) = input.pid_and_command(survivor.process);
        let now_ns = input.profile.duration_ns;
        let oldest = survivor.oldest().and_then(|it| it.mark);
        Self {
            pid,
            command,
            kind: kind_name(survivor.kind),
            totals: counters(&survivor.totals, intervals),
            oldest_ns: oldest.map(|it| now_ns.saturating_sub(it.at_ns)),
            generations: survivor
                .born
                .iter()
                .map(|it| BornJson::new(it, now_ns, intervals))
                .collect(),
            stack: Stack(input, survivor.stack),
        }
    }
}

fn counters(totals: &Totals, intervals: &Intervals) -> Counters {
    Counters::new(totals, intervals)
}
