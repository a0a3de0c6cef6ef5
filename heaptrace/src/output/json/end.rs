//! How a process ended, in a report for programs.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use serde::Serialize;

use crate::join::{self, EndCause};
use crate::output::ends::signal_name;

/// The end of a process; absent while it runs, and if it is not known how it ended.
#[derive(Serialize)]
pub(super) struct End {
    /// `exit`, `signal`, `oom` (killed by the kernel for lack of memory), or `exec` (it continued as another program).
    kind: &'static str,
    /// The exit status.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core_dumped: Option<bool>,
    /// Nanoseconds since the run began.
    at_ns: u64,
}

impl From<join::End> for End {
    fn from(end: join::End) -> Self {
        let named = |kind| Self {
            kind,
            status: None,
            signal: None,
            signal_name: None,
            core_dumped: None,
            at_ns: end.at_ns,
        };
        match end.cause {
            EndCause::Exec => named("exec"),
            EndCause::OutOfMemory => named("oom"),
            EndCause::Exit(status) => Self {
                status: Some(status),
                ..named("exit")
            },
            EndCause::Signal { number, has_core } => Self {
                signal: Some(number),
                signal_name: Some(signal_name(number.into())),
                core_dumped: Some(has_core),
                ..named("signal")
            },
        }
    }
}

/// The control group whose limit of memory a process had reached when the kernel killed it for lack of memory.
#[derive(Serialize)]
pub(super) struct KilledAt<'a> {
    cgroup: &'a str,
    limit_bytes: u64,
    /// How often the kernel had killed a process there (`oom_kill`) when the process began, and after its end.
    oom_kills_before: u64,
    oom_kills: u64,
}

impl<'a> From<&'a join::KilledAt> for KilledAt<'a> {
    fn from(it: &'a join::KilledAt) -> Self {
        Self {
            cgroup: &it.group,
            limit_bytes: it.limit,
            oom_kills_before: it.kills_before,
            oom_kills: it.kills,
        }
    }
}
