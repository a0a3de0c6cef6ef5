//! The stacks that the kernel program sent, by the ids that it gave them.
//!
//! Stage: join.

use heaptrace_common::wire::{StackHead, StackKey, walk};

use super::Joiner;
use crate::join::update::{Completeness, SiteId, StackId};

/// A stack that the kernel program sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::join) struct SentStack {
    pub(super) stack: StackId,
    /// The site of its blocks, once there was one.
    pub(super) site: Option<SiteId>,
    /// How its walk ended.
    walk: u16,
    /// Whether what is mapped from there is an allocator's.
    pub(super) is_allocators: bool,
}

impl Joiner {
    /// Keys of stacks in the kernel's map whose process is gone.
    pub fn take_orphan_stacks(&mut self) -> Vec<StackKey> {
        std::mem::take(&mut self.orphan_stacks)
    }

    pub(super) fn stack(&mut self, head: &StackHead, frames: &[u64]) {
        let key = StackKey {
            low: head.hash[0],
            high: head.hash[1],
            process: head.process,
        };
        let process = self.processes.id(head.process);
        let Some(entry) = process.and_then(|id| self.processes.change(id)) else {
            self.orphan_stacks.push(key);
            return self.lost_one("unjoined");
        };
        if entry.record.ended {
            self.orphan_stacks.push(key);
        } else {
            entry.stacks.push(key);
        }
        let pid = entry.record.pid;
        let is_allocators = self.addresses.is_allocators(pid, head.time, frames);
        self.located.clear();
        let located = &mut self.located;
        self.addresses.locate(pid, head.time, frames, located);
        let sent = SentStack {
            stack: StackId(self.stacks.intern(located, completeness(head.walk))),
            site: None,
            walk: u16::try_from(head.walk).unwrap_or(u16::MAX),
            is_allocators,
        };
        if let Some(entry) = process.and_then(|id| self.processes.change(id)) {
            entry.sent.insert(head.id, sent);
        }
    }

    /// Counts a sample by how far its stack goes.
    pub(super) fn count_stack(&mut self, sent: SentStack) {
        let walk = u32::from(sent.walk);
        match completeness(walk) {
            Completeness::Complete => self.quality.stacks_complete += 1,
            Completeness::Truncated => self.quality.stacks_truncated += 1,
            Completeness::Broken => {
                self.quality.stacks_broken += 1;
                *self.broken.entry(walk::name(walk)).or_default() += 1;
            }
        }
        self.quality.samples += 1;
    }
}

fn completeness(walk: u32) -> Completeness {
    match walk {
        walk::COMPLETE => Completeness::Complete,
        walk::TRUNCATED => Completeness::Truncated,
        _ => Completeness::Broken,
    }
}
