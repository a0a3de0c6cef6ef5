//! The message of the control group at whose limit of memory a process was killed.
//!
//! Stage: profile.

use prost::Message;

use crate::join;

/// [`join::KilledAt`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KilledAt {
    #[prost(string, tag = "1")]
    group: String,
    #[prost(uint64, tag = "2")]
    limit: u64,
    #[prost(uint64, tag = "3")]
    kills_before: u64,
    #[prost(uint64, tag = "4")]
    kills: u64,
}

impl From<&join::KilledAt> for KilledAt {
    fn from(it: &join::KilledAt) -> Self {
        Self {
            group: it.group.clone(),
            limit: it.limit,
            kills_before: it.kills_before,
            kills: it.kills,
        }
    }
}

impl From<KilledAt> for join::KilledAt {
    fn from(it: KilledAt) -> Self {
        Self {
            group: it.group,
            limit: it.limit,
            kills_before: it.kills_before,
            kills: it.kills,
        }
    }
}
