//! The messages of marks, and of what was allocated between two of them.
//!
//! Stage: profile.

use prost::Message;

use super::error::WireError;
use super::site::Site;
use crate::join::{self, GenerationId, MarkCause};

/// [`join::Mark`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Mark {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(uint64, tag = "2")]
    at_ns: u64,
    #[prost(uint32, tag = "3")]
    cause: u32,
}

/// [`join::Exceeded`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Exceeded {
    #[prost(uint32, tag = "1")]
    mark: u32,
    #[prost(uint64, tag = "2")]
    at_ns: u64,
    #[prost(uint64, tag = "3")]
    limit_bytes: u64,
    #[prost(uint64, tag = "4")]
    live_bytes: u64,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(bool, tag = "6")]
    is_group: bool,
}

impl From<&join::Exceeded> for Exceeded {
    fn from(exceeded: &join::Exceeded) -> Self {
        Self {
            mark: exceeded.mark,
            at_ns: exceeded.at_ns,
            limit_bytes: exceeded.limit_bytes,
            live_bytes: exceeded.live_bytes,
            name: exceeded.name.clone(),
            is_group: exceeded.is_group,
        }
    }
}

impl From<Exceeded> for join::Exceeded {
    fn from(exceeded: Exceeded) -> Self {
        Self {
            mark: exceeded.mark,
            at_ns: exceeded.at_ns,
            limit_bytes: exceeded.limit_bytes,
            live_bytes: exceeded.live_bytes,
            name: exceeded.name,
            is_group: exceeded.is_group,
        }
    }
}

/// [`join::Generation`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Generation {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(uint32, tag = "2")]
    mark: u32,
    #[prost(message, optional, tag = "3")]
    site: Option<Site>,
    /// The marks of what survived.
    #[prost(uint32, repeated, tag = "4")]
    marks: Vec<u32>,
    /// The bytes at each of them.
    #[prost(uint64, repeated, tag = "5")]
    survived: Vec<u64>,
}

impl From<&join::Mark> for Mark {
    fn from(mark: &join::Mark) -> Self {
        Self {
            number: mark.number,
            at_ns: mark.at_ns,
            cause: match mark.cause {
                MarkCause::Timer => 1,
                MarkCause::Signal => 2,
                MarkCause::Key => 3,
                MarkCause::Exceeded => 4,
            },
        }
    }
}

impl TryFrom<Mark> for join::Mark {
    type Error = WireError;

    fn try_from(mark: Mark) -> Result<Self, WireError> {
        Ok(Self {
            number: mark.number,
            at_ns: mark.at_ns,
            cause: match mark.cause {
                1 => MarkCause::Timer,
                2 => MarkCause::Signal,
                3 => MarkCause::Key,
                4 => MarkCause::Exceeded,
                value => {
                    return Err(WireError::Unknown {
                        what: "cause of a mark",
                        value,
                    });
                }
            },
        })
    }
}

impl Generation {
    pub(super) fn new((id, generation): &(GenerationId, join::Generation)) -> Self {
        Self {
            id: id.0,
            mark: generation.mark,
            site: Some(Site::of(&generation.site)),
            marks: generation.survived.iter().map(|it| it.0).collect(),
            survived: generation.survived.iter().map(|it| it.1).collect(),
        }
    }

    pub(super) fn into_plain(self) -> Result<(GenerationId, join::Generation), WireError> {
        let (_, site) = self.site.unwrap_or_default().into_plain()?;
        let generation = join::Generation {
            mark: self.mark,
            site,
            survived: self.marks.into_iter().zip(self.survived).collect(),
        };
        Ok((GenerationId(self.id), generation))
    }
}
