//! What nothing in a process points to, for programs.
//!
//! Stage: output. A part of the leaks: field names and their order are stable.

use serde::Serialize;

use super::unreachable::{Unreachable, UnreachableSite};
use crate::join::{Reachability, Totals};
use crate::output::interval::Intervals;
use crate::output::json::Stack;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;

/// The findings of all searches.
#[derive(Serialize)]
pub(super) struct UnreachableJson<'a> {
    searches: Vec<Search<'a>>,
    sites: Vec<Site<'a>>,
}

#[derive(Serialize)]
struct Search<'a> {
    pid: u32,
    command: &'a str,
    /// Absent if the memory was searched.
    #[serde(skip_serializing_if = "str::is_empty")]
    refused: &'a str,
    at_ns: u64,
    stopped_ns: u64,
    threads: u32,
    memory_bytes: u64,
    read_while_stopped_bytes: u64,
    unread_bytes: u64,
    /// Whether all memory was read while the process was stopped.
    is_whole: bool,
    /// How often it was read afterwards, while the process ran; 0 if it was not.
    later_readings: u32,
    /// Whether all blocks of the process are recorded. Otherwise less is found.
    has_all_blocks: bool,
    judged_blocks: u64,
    judged_bytes: u64,
    young_blocks: u64,
    freed_blocks: u64,
}

#[derive(Serialize)]
struct Site<'a> {
    pid: u32,
    command: &'a str,
    blocks: u64,
    bytes: u64,
    #[serde(flatten)]
    error: Option<SampleError>,
    direct_blocks: u64,
    direct_bytes: u64,
    indirect_blocks: u64,
    indirect_bytes: u64,
    stack: Stack<'a>,
}

/// How far estimates can be off; absent in an exact run.
#[derive(Serialize)]
struct SampleError {
    blocks_error: u64,
    bytes_error: u64,
    bytes_low: u64,
    bytes_high: u64,
}

impl<'a> UnreachableJson<'a> {
    /// The findings; `None` if nothing was searched.
    pub(super) fn new(
        input: &'a ReportInput<'a>,
        found: &'a Unreachable,
        top: usize,
    ) -> Option<Self> {
        let intervals = Intervals::of(input.profile);
        let searches = found.searches.iter().map(|it| Search::new(input, it));
        let sites = found.sites.iter().take(top);
        let found = Self {
            searches: searches.collect(),
            sites: sites.map(|it| Site::new(input, it, &intervals)).collect(),
        };
        (!found.searches.is_empty()).then_some(found)
    }
}

impl<'a> Search<'a> {
    fn new(input: &'a ReportInput<'a>, it: &'a Reachability) -> Self {
        let (pid, command) = input.pid_and_command(it.process);
        Self {
            pid,
            command,
            refused: &it.refused,
            at_ns: it.at_ns,
            stopped_ns: it.stopped_ns,
            threads: it.threads,
            memory_bytes: it.memory_bytes,
            read_while_stopped_bytes: it.stopped_bytes,
            unread_bytes: it.unread_bytes,
            is_whole: it.is_whole,
            later_readings: it.later_readings,
            has_all_blocks: it.has_all_blocks,
            judged_blocks: it.judged_blocks,
            judged_bytes: it.judged_bytes,
            young_blocks: it.young_blocks,
            freed_blocks: it.freed_blocks,
        }
    }
}

impl<'a> Site<'a> {
    fn new(input: &'a ReportInput<'a>, it: &UnreachableSite, intervals: &Intervals) -> Self {
        let (pid, command) = input.pid_and_command(it.process);
        Self {
            pid,
            command,
            blocks: it.all.live_allocations,
            bytes: it.all.live_bytes,
            error: SampleError::new(intervals, &it.all),
            direct_blocks: it.direct.live_allocations,
            direct_bytes: it.direct.live_bytes,
            indirect_blocks: it.indirect.live_allocations,
            indirect_bytes: it.indirect.live_bytes,
            stack: Stack(input, it.stack),
        }
    }
}

impl SampleError {
    fn new(intervals: &Intervals, totals: &Totals) -> Option<Self> {
        let interval = intervals.around(Metric::LiveBytes, totals)?;
        Some(Self {
            blocks_error: totals.errors.live_allocations,
            bytes_error: totals.errors.live_bytes,
            bytes_low: interval.low,
            bytes_high: interval.high,
        })
    }
}
