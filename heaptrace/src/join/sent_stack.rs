//! A stack that the kernel program sent, as the join keeps it under the kernel program's id.
//!
//! Stage: join.

use heaptrace_common::wire::walk;

use super::language_frames::LanguagePart;
use super::packed_addresses::PackedAddresses;
use super::update::{Completeness, SiteId, StackId};

/// A stack as the kernel program sent it, and what it means.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) stack: SentStack,
    /// The time for which it was resolved last.
    pub(super) time: u64,
    /// To resolve it anew when code was replaced.
    pub(super) addresses: PackedAddresses,
    pub(super) language: Option<Box<LanguagePart>>,
}

/// A stack of one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentStack {
    pub(super) stack: StackId,
    /// The site of its blocks, if it has one for all threads.
    pub(super) site: Option<SiteId>,
    /// How its walk ended.
    walk: u16,
    /// Whether memory that is mapped from here belongs to an allocator.
    pub(super) is_allocators: bool,
}

impl SentStack {
    pub(super) fn new(stack: StackId, walk: u32, is_allocators: bool) -> Self {
        Self {
            stack,
            site: None,
            walk: u16::try_from(walk).unwrap_or(u16::MAX),
            is_allocators,
        }
    }

    /// How its walk ended, one of [`walk`].
    pub(super) fn walk(&self) -> u32 {
        u32::from(self.walk)
    }
}

/// How far a stack goes, by how its walk ended.
pub(super) fn completeness(walk: u32) -> Completeness {
    match walk {
        walk::COMPLETE => Completeness::Complete,
        walk::TRUNCATED => Completeness::Truncated,
        _ => Completeness::Broken,
    }
}
