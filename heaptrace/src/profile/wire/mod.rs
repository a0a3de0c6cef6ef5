//! The messages inside the data file's chunks, and their conversion from and to plain types.
//!
//! Stage: profile. Fields may be added under new tags; a tag never changes its meaning. Knows
//! nothing of chunks, files and checksums.

mod counters;
mod duty_cycle;
mod fields;
pub(super) mod merge;
mod symbols;
mod update;

use prost::Message;
use thiserror::Error;

use super::budget::Exceeded;
use super::{Mode, RunInfo, SizeRange};

pub(super) use symbols::SymbolsMessage;
pub(super) use update::UpdateMessage;

/// A message that decodes, but says something that this version can't know.
#[derive(Debug, Error)]
pub(in crate::profile) enum WireError {
    /// Not a message at all.
    #[error("undecodable: {0}")]
    Decode(#[from] prost::DecodeError),
    /// Not a message, before anything of it was decoded.
    #[error("undecodable")]
    Malformed,
    /// A list that no writer makes so long.
    #[error("too many {what}")]
    TooMany {
        /// What is in the list.
        what: &'static str,
    },
    /// It takes too much memory.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// A value of an enumeration that this version does not have.
    #[error("unknown {what} {value}")]
    Unknown {
        /// The enumeration.
        what: &'static str,
        /// The value.
        value: u32,
    },
}

/// Most code addresses of a stack, and most functions of a code address: far beyond what is written, so that a
/// later version may write more.
const MAX_DEPTH: usize = 4096;

const MODE_EXACT: u32 = 1;
const MODE_SAMPLED: u32 = 2;

/// [`RunInfo`].
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

/// The orderly end.
#[derive(Clone, PartialEq, Message)]
pub(in crate::profile) struct End {
    #[prost(uint64, tag = "1")]
    pub(in crate::profile) duration_ns: u64,
}

/// Something that goes out in several messages.
trait Part: Message + Default {
    /// Says that another part follows.
    fn set_more(&mut self);
}

impl Part for UpdateMessage {
    fn set_more(&mut self) {
        self.more = true;
    }
}

impl Part for SymbolsMessage {
    fn set_more(&mut self) {
        self.more = true;
    }
}

/// Records, dealt out to messages of bounded size.
struct Parts<P> {
    done: Vec<P>,
    open: P,
    size: usize,
    budget: usize,
}

impl<P: Part> Parts<P> {
    fn new(budget: usize) -> Self {
        Self {
            done: Vec::new(),
            open: P::default(),
            size: 0,
            budget,
        }
    }

    /// Adds a record to the list that `list` picks, in a new message where this one is full.
    fn add<T: Message>(&mut self, record: T, list: impl FnOnce(&mut P) -> &mut Vec<T>) {
        let size = record.encoded_len() + 6;
        self.reserve(size);
        list(&mut self.open).push(record);
    }

    fn reserve(&mut self, size: usize) {
        if self.size > 0 && self.size + size > self.budget {
            let mut full = std::mem::take(&mut self.open);
            full.set_more();
            self.done.push(full);
            self.size = 0;
        }
        self.size += size;
    }

    fn all(mut self) -> Vec<P> {
        self.done.push(self.open);
        self.done
    }
}
