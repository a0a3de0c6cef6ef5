//! Stacks as they arrive: their addresses become locations, and equal stacks become one.
//!
//! Stage: join.

use heaptrace_common::wire::{StackHead, StackKey};

use super::addresses::Addresses;
use super::interner::StackInterner;
use super::jit::{Jit, JitStack, Tables};
use super::keyed_hash::HashMap;
use super::ledger::Ledger;
use super::orphans::Orphans;
use super::packed_addresses::PackedAddresses;
use super::python::{Python, PythonPart};
use super::sent_stack::{Sent, SentStack, completeness};
use super::update::{Function, FunctionId, Location, LocationId, ProcessId, Stack, StackId};
use crate::jit::Change;

/// The stacks of a run.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    interned: StackInterner,
    python: Python,
    jit: Jit,
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
            id: head.id,
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
        let has_renamed = self.jit.has_replaced(entry.serial(), sent.time, time);
        if !has_renamed && !addresses.has_replaced(pid, sent.time, time) {
            return Some(sent.stack);
        }
        let frames: Vec<u64> = sent.addresses.iter().collect();
        let mut stack = sent.stack;
        if has_renamed || addresses.differ(pid, sent.time, time, &frames) {
            let its = Its {
                pid,
                serial: entry.serial(),
                id,
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
        let stack = JitStack {
            process: its.serial,
            id: its.id,
            time,
            frames,
            named: its.python.map_or([0; 2], |part| part.loops),
            has_language: its.python.is_some(),
        };
        let Self { jit, python, .. } = self;
        let mut tables = RunTables { addresses, python };
        jit.name(stack, &mut self.locations, &mut tables);
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

    /// Takes over what a file says of a process's generated code.
    pub(super) fn change_generated_code(
        &mut self,
        process: u64,
        change: Change,
        now: u64,
        addresses: &mut Addresses,
    ) {
        let Self { jit, python, .. } = self;
        let mut tables = RunTables { addresses, python };
        jit.change(process, change, now, &mut tables);
    }

    /// Gives the stacks of a process the names that came after them.
    pub(super) fn name_late(
        &mut self,
        process: ProcessId,
        serial: u64,
        ledger: &mut Ledger,
        addresses: &mut Addresses,
    ) {
        let mut renamed = HashMap::default();
        for id in self.jit.named_late(serial) {
            let entry = ledger.processes().get(process);
            let Some((entry, sent)) = entry.and_then(|it| Some((it, it.sent(id)?))) else {
                continue;
            };
            let frames: Vec<u64> = sent.addresses.iter().collect();
            let its = Its {
                pid: entry.record().pid,
                serial,
                id,
                python: sent.python.as_deref().copied(),
            };
            let (before, time) = (sent.stack, sent.time);
            let mut stack = self.resolve(its, time, &frames, before.walk(), addresses);
            stack.site = before.site;
            if stack.stack != before.stack {
                renamed.insert(before.stack, stack.stack);
            }
            ledger.set_stack(process, id, stack, time);
        }
        self.jit.settle(serial);
        ledger.rename_stacks(process, &renamed);
    }

    /// The generated code of all processes.
    pub(super) fn jit(&mut self) -> &mut Jit {
        &mut self.jit
    }

    /// Forgets what belongs to the stacks of a process that has ended.
    pub(super) fn forget(&mut self, process: u64) {
        self.python.forget(process);
        self.jit.forget(process);
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
    /// The kernel program's id of the stack.
    id: u64,
    python: Option<PythonPart>,
}

/// The tables of the run that names of generated code are added to.
struct RunTables<'a> {
    addresses: &'a mut Addresses,
    python: &'a mut Python,
}

impl Tables for RunTables<'_> {
    fn function(&mut self, function: &Function) -> FunctionId {
        self.python.function(function)
    }

    fn location(&mut self, location: &Location) -> LocationId {
        self.addresses.intern(location)
    }

    fn is_without_file(&self, location: LocationId) -> bool {
        self.addresses.is_without_file(location)
    }
}
