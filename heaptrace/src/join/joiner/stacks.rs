//! The stacks that the kernel program sent, by the ids that it gave them.
//!
//! Stage: join.

use heaptrace_common::wire::{StackHead, StackKey, walk};

use super::Joiner;
use crate::join::update::{Completeness, Stack, StackId};

/// A stack that the kernel program sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentStack {
    pub(super) stack: StackId,
    /// How its walk ended.
    pub(super) walk: u32,
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
        let Some(entry) = self
            .processes
            .id(head.process)
            .and_then(|id| self.processes.change(id))
        else {
            self.orphan_stacks.push(key);
            return self.lost_one("unjoined");
        };
        if entry.record.ended {
            self.orphan_stacks.push(key);
        } else {
            entry.stacks.push((key, head.id));
        }
        let pid = entry.record.pid;
        let is_allocators = self.addresses.is_allocators(pid, head.time, frames);
        let locations = frames
            .iter()
            .map(|address| self.addresses.location(pid, head.time, *address))
            .collect();
        let stack = Stack {
            locations,
            completeness: match head.walk {
                walk::COMPLETE => Completeness::Complete,
                walk::TRUNCATED => Completeness::Truncated,
                _ => Completeness::Broken,
            },
        };
        let sent = SentStack {
            stack: StackId(self.stacks.intern(&stack)),
            walk: head.walk,
            is_allocators,
        };
        self.sent_stacks.insert(head.id, sent);
    }

    /// Counts a sample by how far its stack goes.
    pub(super) fn count_stack(&mut self, sent: SentStack) {
        let stack = self.stacks.get(sent.stack.0);
        match stack.map(|stack| stack.completeness) {
            Some(Completeness::Complete) => self.quality.stacks_complete += 1,
            Some(Completeness::Truncated) => self.quality.stacks_truncated += 1,
            _ => {
                self.quality.stacks_broken += 1;
                *self.broken.entry(walk::name(sent.walk)).or_default() += 1;
            }
        }
        self.quality.samples += 1;
    }
}
