//! Stacks as they arrive: their addresses become locations, and equal stacks become one.
//!
//! Stage: join.

use heaptrace_common::wire::{StackHead, StackKey};

use super::addresses::Addresses;
use super::interner::StackInterner;
use super::ledger::Ledger;
use super::orphans::Orphans;
use super::sent_stack::{SentStack, completeness};
use super::update::{LocationId, Stack, StackId};

/// The stacks of a run.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    interned: StackInterner,
    /// The locations of one stack; kept for its memory.
    locations: Vec<LocationId>,
}

impl Stacks {
    /// Adds a stack to its process. Returns whether the process is known.
    pub(super) fn add(
        &mut self,
        head: &StackHead,
        frames: &[u64],
        ledger: &mut Ledger,
        addresses: &mut Addresses,
        orphans: &mut Orphans,
    ) -> bool {
        let key = StackKey {
            low: head.hash[0],
            high: head.hash[1],
            process: head.process,
        };
        let processes = ledger.processes();
        let process = processes.id(head.process);
        let Some((process, entry)) = process.and_then(|id| Some((id, processes.get(id)?))) else {
            orphans.add_stack(key);
            return false;
        };
        let pid = entry.record().pid;
        let is_allocators = addresses.is_allocators(pid, head.time, frames);
        self.locations.clear();
        addresses.locate(pid, head.time, frames, &mut self.locations);
        let stack = self
            .interned
            .intern(&self.locations, completeness(head.walk));
        let sent = SentStack::new(StackId(stack), head.walk, is_allocators);
        if let Some(orphan) = ledger.add_stack(process, head.id, key, sent) {
            orphans.add_stack(orphan);
        }
        true
    }

    /// The stacks that are new since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Stack> {
        self.interned.take_new()
    }
}
