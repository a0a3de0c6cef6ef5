//! The moments of a run, for programs.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use serde::Serialize;

use crate::join;
use crate::output::moments;
use crate::output::report_input::ReportInput;

/// A limit of live memory that was exceeded.
#[derive(Serialize)]
pub(in crate::output) struct Exceeded<'a> {
    /// The number of the mark that was made then; absent if there was no room for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<u32>,
    at_ns: u64,
    limit_bytes: u64,
    live_bytes: u64,
    /// `process` or `cgroup`.
    kind: &'static str,
    name: &'a str,
}

impl<'a> Exceeded<'a> {
    /// The limits that were exceeded in the time of a report.
    pub(in crate::output) fn all(input: &ReportInput<'a>) -> Vec<Self> {
        let all = moments::exceeded(input).into_iter();
        all.map(Self::new).collect()
    }

    fn new(exceeded: &'a join::Exceeded) -> Self {
        Self {
            mark: (exceeded.mark > 0).then_some(exceeded.mark),
            at_ns: exceeded.at_ns,
            limit_bytes: exceeded.limit_bytes,
            live_bytes: exceeded.live_bytes,
            kind: if exceeded.is_group {
                "cgroup"
            } else {
                "process"
            },
            name: &exceeded.name,
        }
    }
}

/// A moment of a timeline: a sudden end of a process, or a limit that was exceeded.
#[derive(Serialize)]
pub(in crate::output) struct Moment {
    at_ns: u64,
    words: String,
}

impl Moment {
    /// The moments in the time of a report.
    pub(in crate::output) fn all(input: &ReportInput<'_>) -> Vec<Self> {
        let all = moments::moments(input).into_iter();
        all.map(|it| Self {
            at_ns: it.at_ns,
            words: it.words,
        })
        .collect()
    }
}
