//! The messages of which processes were traced, and from when to when.
//!
//! Stage: profile.

use prost::Message;

use crate::join;

/// [`join::Traced`], as a message.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Traced {
    #[prost(uint64, tag = "1")]
    from_ns: u64,
    #[prost(uint64, tag = "2")]
    age_ns: u64,
    #[prost(uint64, optional, tag = "3")]
    to_ns: Option<u64>,
}

/// [`join::ShortLived`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ShortLived {
    #[prost(string, tag = "1")]
    command: String,
    #[prost(string, tag = "2")]
    cgroup: String,
    #[prost(uint64, tag = "3")]
    processes: u64,
    #[prost(uint64, tag = "4")]
    lived_ns: u64,
}

impl From<join::Traced> for Traced {
    fn from(traced: join::Traced) -> Self {
        Self {
            from_ns: traced.from_ns,
            age_ns: traced.age_ns,
            to_ns: traced.to_ns,
        }
    }
}

impl From<Traced> for join::Traced {
    fn from(traced: Traced) -> Self {
        Self {
            from_ns: traced.from_ns,
            age_ns: traced.age_ns,
            to_ns: traced.to_ns,
        }
    }
}

impl From<&join::ShortLived> for ShortLived {
    fn from(ended: &join::ShortLived) -> Self {
        Self {
            command: ended.command.clone(),
            cgroup: ended.cgroup.clone(),
            processes: ended.processes,
            lived_ns: ended.lived_ns,
        }
    }
}

impl From<ShortLived> for join::ShortLived {
    fn from(ended: ShortLived) -> Self {
        Self {
            command: ended.command,
            cgroup: ended.cgroup,
            processes: ended.processes,
            lived_ns: ended.lived_ns,
        }
    }
}
