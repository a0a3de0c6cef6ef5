//! The messages of how a run was made, and of its orderly end.
//!
//! Stage: profile.

use prost::Message;

use super::error::WireError;
use crate::profile::model::{Mode, RunInfo, SizeRange};

const MODE_EXACT: u32 = 1;
const MODE_SAMPLED: u32 = 2;

/// How a run was made, as a message.
#[derive(Clone, PartialEq, Message)]
pub(in crate::profile) struct Start {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(uint32, tag = "2")]
    mode: u32,
    #[prost(fixed64, tag = "3")]
    started_unix_ns: u64,
    #[prost(string, tag = "4")]
    target: String,
    #[prost(string, tag = "5")]
    kernel: String,
    #[prost(uint64, tag = "6")]
    mean_bytes: u64,
    #[prost(uint64, tag = "7")]
    min_size: u64,
    #[prost(uint64, optional, tag = "8")]
    max_size: Option<u64>,
}

impl From<&RunInfo> for Start {
    fn from(info: &RunInfo) -> Self {
        Self {
            version: info.version.clone(),
            mode: match info.mode {
                Mode::Exact => MODE_EXACT,
                Mode::Sampled { .. } => MODE_SAMPLED,
            },
            mean_bytes: match info.mode {
                Mode::Exact => 0,
                Mode::Sampled { mean_bytes } => mean_bytes,
            },
            min_size: info.sizes.min,
            max_size: Some(info.sizes.max).filter(|max| *max != u64::MAX),
            started_unix_ns: info.started_unix_ns,
            target: info.target.clone(),
            kernel: info.kernel.clone(),
        }
    }
}

impl TryFrom<Start> for RunInfo {
    type Error = WireError;

    fn try_from(start: Start) -> Result<Self, WireError> {
        Ok(Self {
            version: start.version,
            mode: match start.mode {
                MODE_EXACT => Mode::Exact,
                MODE_SAMPLED => Mode::Sampled {
                    mean_bytes: start.mean_bytes,
                },
                value => {
                    return Err(WireError::Unknown {
                        what: "recording mode",
                        value,
                    });
                }
            },
            sizes: SizeRange {
                min: start.min_size,
                max: start.max_size.unwrap_or(u64::MAX),
            },
            started_unix_ns: start.started_unix_ns,
            target: start.target,
            kernel: start.kernel,
        })
    }
}

/// The orderly end of a run.
#[derive(Clone, PartialEq, Message)]
pub(in crate::profile) struct End {
    #[prost(uint64, tag = "1")]
    pub(in crate::profile) duration_ns: u64,
}
