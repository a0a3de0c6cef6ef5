//! The join of names of generated code.
//!
//! Stage: join.

use std::fs::File;
use std::sync::Arc;

use heaptrace_common::wire::StackHead;

use super::Joiner;
use crate::jit::Change;
use crate::join::reasons::Note;

/// A process with code that has no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedCode {
    /// Its process id.
    pub pid: u32,
    /// When it started, nanoseconds on the boot clock.
    pub start_time_ns: u64,
}

impl Joiner {
    /// The running process of a stack, if frames of the stack are in code without a file.
    pub fn generated_code(&mut self, head: &StackHead, frames: &[u64]) -> Option<GeneratedCode> {
        let processes = self.ledger.processes();
        let record = processes.get(processes.id(head.process)?)?.record();
        let found = GeneratedCode {
            pid: record.pid,
            start_time_ns: record.start_time_ns,
        };
        let is_ended = record.ended;
        let has_such = self
            .addresses
            .has_code_without_file(found.pid, head.time, frames);
        (has_such && !is_ended).then_some(found)
    }

    /// The jitdump files that a process has announced since the last call.
    pub fn take_jitdumps(&mut self, pid: u32) -> Vec<Arc<File>> {
        self.addresses.take_jitdumps(pid)
    }

    /// Joins what a file says of a process's generated code. `now` is on the clock of events.
    pub fn change_generated_code(&mut self, process: u64, change: Change, now: u64) {
        if self.ledger.processes().id(process).is_some() {
            let Self {
                stacks, addresses, ..
            } = self;
            stacks.change_generated_code(process, change, now, addresses);
        }
    }

    /// Counts lines or records of such a file that are not valid.
    pub fn count_broken_names(&mut self, count: u64) {
        self.stacks.jit().count_broken(count);
    }

    /// Gives the stacks of a process the names that came after them.
    pub fn name_late(&mut self, process: u64) {
        let Self {
            stacks,
            addresses,
            ledger,
            ..
        } = self;
        if let Some(id) = ledger.processes().id(process) {
            stacks.name_late(id, process, ledger, addresses);
        }
    }

    pub(super) fn note_generated_code(&mut self) {
        let counts = self.stacks.jit().counts();
        for (note, count) in [
            (Note::JitFramesUnnamed, counts.unnamed),
            (Note::JitFunctionsNotKept, counts.not_kept),
            (Note::JitNamesBroken, counts.broken),
        ] {
            self.facts.set_noted(note, count);
        }
    }
}
