//! The message of a site.
//!
//! Stage: profile.

use prost::Message;

use super::counters::Counters;
use super::error::WireError;
use crate::join::{self, BlockSizes, Kind, OwnPeak, ProcessId, SiteId, StackId, ThreadNameId};

/// [`join::Site`], as a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Site {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(uint32, tag = "2")]
    process: u32,
    #[prost(uint32, tag = "3")]
    stack: u32,
    #[prost(message, optional, tag = "4")]
    totals: Option<Counters>,
    /// The size of the smallest block.
    #[prost(uint64, optional, tag = "5")]
    smallest: Option<u64>,
    /// By how much the largest block is larger.
    #[prost(uint64, tag = "6")]
    larger_by: u64,
    #[prost(uint32, optional, tag = "20")]
    thread: Option<u32>,
    #[prost(uint32, tag = "21")]
    kind: u32,
    #[prost(uint64, tag = "22")]
    own_peak_bytes: u64,
    #[prost(uint64, tag = "23")]
    own_peak_error: u64,
    #[prost(uint64, tag = "24")]
    own_peak_unseen: u64,
}

impl Site {
    pub(super) fn new(id: SiteId, site: &join::Site) -> Self {
        Self {
            id: id.0,
            ..Self::of(site)
        }
    }

    /// A site whose id is elsewhere.
    pub(super) fn of(site: &join::Site) -> Self {
        Self {
            id: 0,
            process: site.process.0,
            stack: site.stack.0,
            thread: site.thread.map(|id| id.0),
            kind: match site.kind {
                Kind::Heap => 0,
                Kind::Mapped => 1,
            },
            totals: Some(site.totals.into()),
            smallest: site.block_sizes.map(|it| it.smallest),
            larger_by: site
                .block_sizes
                .map_or(0, |it| it.largest.saturating_sub(it.smallest)),
            own_peak_bytes: site.own_peak.bytes,
            own_peak_error: site.own_peak.error,
            own_peak_unseen: site.own_peak.unseen,
        }
    }

    pub(super) fn into_plain(self) -> Result<(SiteId, join::Site), WireError> {
        let site = join::Site {
            process: ProcessId(self.process),
            stack: StackId(self.stack),
            thread: self.thread.map(ThreadNameId),
            kind: match self.kind {
                0 => Kind::Heap,
                1 => Kind::Mapped,
                value => {
                    return Err(WireError::Unknown {
                        what: "kind of memory",
                        value,
                    });
                }
            },
            totals: self.totals.unwrap_or_default().into(),
            own_peak: OwnPeak {
                bytes: self.own_peak_bytes,
                error: self.own_peak_error,
                unseen: self.own_peak_unseen,
            },
            block_sizes: self.smallest.map(|smallest| BlockSizes {
                smallest,
                largest: smallest.saturating_add(self.larger_by),
            }),
            slot: SiteId(self.id),
        };
        Ok((SiteId(self.id), site))
    }
}
