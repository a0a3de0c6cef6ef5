//! Stacks as they arrive: their addresses become locations, and equal stacks become one.
//!
//! Stage: join.

use heaptrace_common::wire::{StackHead, StackKey};

use super::addresses::Addresses;
use super::interner::StackInterner;
use super::ledger::Ledger;
use super::orphans::Orphans;
use super::packed_addresses::PackedAddresses;
use super::python::{Python, PythonPart};
use super::sent_stack::{Sent, SentStack, completeness};
use super::update::{LocationId, ProcessId, Stack, StackId};

/// The stacks of a run.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    interned: StackInterner,
    python: Python,
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
        let python = (head.python != 0).then_some(PythonPart {
            id: head.python,
            loops: head.python_loops,
        });
        let its = Its {
            pid,
            serial: head.process,
            python,
        };
        let stack = self.resolve(its, head.time, frames, head.walk, addresses);
        let sent = Sent {
            stack,
            time: head.time,
            addresses: PackedAddresses::new(frames),
            python: python.map(Box::new),
        };
        if let Some(orphan) = ledger.add_stack(process, head.id, key, sent) {
            orphans.add_stack(orphan);
        }
        true
    }

    /// A stack that was sent, by the kernel program's id of it, as it is at the time of an event. The kernel
    /// program knows only addresses: a library may have been unloaded, and another one loaded in its place.
    pub(super) fn at(
        &mut self,
        process: ProcessId,
        id: u64,
        time: u64,
        ledger: &mut Ledger,
        addresses: &mut Addresses,
    ) -> Option<SentStack> {
        let entry = ledger.processes().get(process)?;
        let pid = entry.record().pid;
        let sent = entry.sent(id)?;
        if !addresses.has_replaced(pid, sent.time, time) {
            return Some(sent.stack);
        }
        let frames: Vec<u64> = sent.addresses.iter().collect();
        let mut stack = sent.stack;
        if addresses.differ(pid, sent.time, time, &frames) {
            let its = Its {
                pid,
                serial: entry.serial(),
                python: sent.python.as_deref().copied(),
            };
            stack = self.resolve(its, time, &frames, stack.walk(), addresses);
        }
        ledger.set_stack(process, id, stack, time);
        Some(stack)
    }

    /// A stack, as it is at a time.
    fn resolve(
        &mut self,
        its: Its,
        time: u64,
        frames: &[u64],
        walk: u32,
        addresses: &mut Addresses,
    ) -> SentStack {
        let is_allocators = addresses.is_allocators(its.pid, time, frames);
        self.locations.clear();
        addresses.locate(its.pid, time, frames, &mut self.locations);
        if let Some(part) = its.python {
            self.python.merge(its.serial, part, &mut self.locations);
        }
        let stack = self.interned.intern(&self.locations, completeness(walk));
        SentStack::new(StackId(stack), walk, is_allocators)
    }

    /// The stacks that are new since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Stack> {
        self.interned.take_new()
    }

    /// The Python frames of all processes.
    pub(super) fn python(&mut self) -> &mut Python {
        &mut self.python
    }
}

/// What a stack belongs to, and what belongs to it.
#[derive(Clone, Copy, Debug)]
struct Its {
    pid: u32,
    /// The number of its process that events carry.
    serial: u64,
    python: Option<PythonPart>,
}
