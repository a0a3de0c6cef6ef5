//! Ends of processes, and the begin of the run, from which their times count.
//!
//! Stage: join. Must not know what is done when a process ends suddenly.

use heaptrace_common::wire::{ProcessEnd, end};

use super::Joiner;
use crate::join::end::{End, EndCause};
use crate::join::reasons::Note;

impl Joiner {
    /// Sets when probing began, on the boot clock: processes that are older have memory from before.
    pub fn set_begin(&mut self, boot_ns: u64) {
        self.earlier.set_begin(boot_ns);
    }

    /// Sets when the run began, on the monotonic clock.
    pub fn set_began(&mut self, time: u64) {
        self.began = time;
    }

    pub(super) fn process_ended(&mut self, event: &ProcessEnd) {
        let Some(process) = self.ledger.processes().id(event.process) else {
            return;
        };
        let Some(pid) = self.ledger.end(process, event) else {
            return;
        };
        let cause = EndCause::of(event);
        self.had_sudden_end |= cause.is_sudden();
        let at_ns = event.time.saturating_sub(self.began);
        let is_killed = cause == EndCause::OutOfMemory;
        let killed_at = self.memory_groups.end(event.process, is_killed);
        let end = End { cause, at_ns };
        self.ledger.set_end(process, end, killed_at);
        self.ending.push(process);
        if let Some(threads) = &mut self.threads {
            threads.ended(event.process);
        }
        if event.reason == end::EXIT {
            self.addresses.forget(pid, event.time);
        }
    }

    /// Whether a process crashed or was killed since the last call.
    pub fn take_sudden_end(&mut self) -> bool {
        std::mem::take(&mut self.had_sudden_end)
    }

    /// How many processes have ended and are not closed yet.
    pub fn ending(&self) -> usize {
        self.ending.len()
    }

    /// Closes the first so many of them: everything that they did is joined, frees without an event included.
    pub fn close(&mut self, count: usize) {
        for process in self.ending.drain(..count.min(self.ending.len())) {
            if let Some(leftovers) = self.ledger.close(process) {
                self.stacks.forget(leftovers.serial);
                self.orphans.add(leftovers);
            }
            self.mappings.forget(process);
            for merged in self.ended.add(process, &mut self.ledger) {
                // Events that came after the end of the process may have added some.
                self.mappings.forget(merged);
            }
        }
        let merged = self.ended.sudden_merged();
        self.facts.set_noted(Note::SuddenEndsMerged, merged);
    }
}
