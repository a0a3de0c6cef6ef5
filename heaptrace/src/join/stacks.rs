//! Stacks as they arrive: their addresses become locations, and equal stacks become one.
//!
//! Stage: join.

use heaptrace_common::wire::{StackHead, StackKey};

use super::addresses::Addresses;
use super::interner::StackInterner;
use super::java::Java;
use super::javascript::{JavaScript, ReadFrames};
use super::jit::{Jit, JitStack, Tables};
use super::keyed_hash::HashMap;
use super::language_frames::{LanguageFrames, LanguagePart};
use super::ledger::Ledger;
use super::orphans::Orphans;
use super::packed_addresses::PackedAddresses;
use super::python::Python;
use super::reasons::Note;
use super::sent_stack::{Sent, SentStack, completeness};
use super::update::{Function, FunctionId, Location, LocationId, ProcessId, Stack, StackId};
use crate::events::java::NamedJavaFrames;
use crate::events::python::{PythonCode, PythonFrames};
use crate::events::v8::V8Frames;
use crate::jit::Change;

/// The stacks of a run.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    interned: StackInterner,
    language: LanguageFrames,
    python: Python,
    jit: Jit,
    javascript: JavaScript,
    java: Java,
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
        let language = (head.language != 0).then_some(LanguagePart {
            id: head.language,
            frames: head.language_frames,
        });
        let its = Its {
            pid,
            serial: head.process,
            id: head.id,
            language,
        };
        let stack = self.resolve(its, head.time, frames, head.walk, addresses);
        let sent = Sent {
            stack,
            time: head.time,
            addresses: PackedAddresses::new(frames),
            language: language.map(Box::new),
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
                language: sent.language.as_deref().copied(),
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
            named: its.language.map_or([0; 2], |part| part.frames),
            has_language: its.language.is_some(),
        };
        let Self { jit, language, .. } = self;
        let mut tables = RunTables {
            addresses,
            language,
        };
        jit.name(stack, &mut self.locations, &mut tables);
        if let Some(part) = its.language {
            self.language.merge(its.serial, part, &mut self.locations);
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
        let Self { jit, language, .. } = self;
        let mut tables = RunTables {
            addresses,
            language,
        };
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
                language: sent.language.as_deref().copied(),
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

    /// The functions that are new since the last call.
    pub(super) fn take_new_functions(&mut self) -> Vec<Function> {
        self.language.take_new()
    }

    /// Adds a code object of Python.
    pub(super) fn add_python_code(&mut self, code: PythonCode) {
        self.python.add_code(code, &mut self.language);
    }

    /// Adds Python frames. `intern` adds a location.
    pub(super) fn add_python_frames(
        &mut self,
        event: &PythonFrames,
        intern: impl FnMut(Location) -> LocationId,
    ) {
        self.python.add_frames(event, &mut self.language, intern);
    }

    /// Reads the functions of frames of JavaScript.
    pub(super) fn read_javascript(&mut self, event: &V8Frames) -> ReadFrames {
        self.javascript.read(event, &mut self.language)
    }

    /// Remembers the functions of frames of JavaScript that a stack may have.
    pub(super) fn read_javascript_ahead(&mut self, event: &V8Frames) {
        self.javascript.read_ahead(event, &mut self.language);
    }

    /// Adds frames of JavaScript. `intern` adds a location.
    pub(super) fn add_javascript(
        &mut self,
        read: &ReadFrames,
        intern: impl FnMut(Location) -> LocationId,
    ) {
        self.javascript.add(read, &mut self.language, intern);
    }

    /// Adds frames of Java. `intern` adds a location.
    pub(super) fn add_java(
        &mut self,
        event: &NamedJavaFrames,
        intern: impl FnMut(Location) -> LocationId,
    ) {
        self.java.add(event, &mut self.language, intern);
    }

    /// Whether stacks of a process name frames of Java by an id.
    pub(super) fn has_java(&self, process: u64, id: u64) -> bool {
        self.language.in_place(process, id).is_some()
    }

    /// How many stacks or frames lack what belongs to them.
    pub(super) fn lacks(&self) -> [(Note, u64); 4] {
        [
            (Note::PythonFramesNotKept, self.python.not_kept()),
            (Note::JavaScriptFramesNotKept, self.javascript.not_kept()),
            (Note::JavaScriptFramesUnnamed, self.javascript.unnamed()),
            (Note::JavaFramesNotKept, self.java.not_kept()),
        ]
    }

    /// Forgets the language frames of a process that has ended.
    pub(super) fn forget(&mut self, process: u64) {
        self.language.forget(process);
        self.python.forget(process);
        self.jit.forget(process);
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
    language: Option<LanguagePart>,
}

/// The tables of the run that names of generated code are added to.
struct RunTables<'a> {
    addresses: &'a mut Addresses,
    language: &'a mut LanguageFrames,
}

impl Tables for RunTables<'_> {
    fn function(&mut self, function: &Function) -> FunctionId {
        self.language.function(function)
    }

    fn location(&mut self, location: &Location) -> LocationId {
        self.addresses.intern(location)
    }

    fn is_without_file(&self, location: LocationId) -> bool {
        self.addresses.is_without_file(location)
    }
}
