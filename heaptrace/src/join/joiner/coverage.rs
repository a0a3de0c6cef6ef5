//! Which processes are covered, and when: those that probes have reached, one by one, and those that are paused.
//!
//! Stage: join. The session says when that changes. Must not know how a process is reached or paused.

use heaptrace_common::wire;

use super::Joiner;
use crate::join::coverage::ReachedProcess;
use crate::join::reasons::Note;

impl Joiner {
    /// Records that probes have reached a process, in a run that reaches processes one by one.
    pub fn reach(&mut self, reached: ReachedProcess) {
        self.coverage.reach(reached);
        self.facts
            .set_noted(Note::ProcessesReached, self.coverage.count());
    }

    /// Records that a process that probes had reached has ended.
    pub fn leave(&mut self, pid: u32, time: u64) {
        self.coverage.leave(pid, time);
    }

    /// Whether probes have reached a process, in a run that reaches processes one by one.
    pub fn has_reached(&self, pid: u32) -> bool {
        self.coverage.has(pid)
    }

    /// The processes that probes have reached.
    pub fn reached(&self) -> Vec<u32> {
        self.coverage.pids()
    }

    /// Sets the processes that ended before probes reached them.
    pub fn set_short_lived(&mut self, counted: Vec<(wire::ShortLivedKey, wire::ShortLived)>) {
        if counted.is_empty() {
            return;
        }
        let all = counted.iter().map(|(_, count)| count.processes).sum();
        let named = self.coverage.name(counted, &mut self.cgroups);
        self.facts.set_short_lived(all, named);
    }

    /// Records that a process is not probed from now on, and the share of its processor time that probes
    /// took, in ten-thousandths.
    ///
    /// `time` is on the clock of events, and not before the last call of the process that was seen.
    pub fn pause(&mut self, pid: u32, overhead: u32, elapsed_ns: u64, time: u64) {
        let Self { paused, ledger, .. } = self;
        if let Some(process) = paused.pause(ledger, pid, overhead, elapsed_ns, time) {
            // A later unmapping could not be told from one of something that was mapped there during the pause.
            self.mappings.forget(process);
        }
    }

    /// Sets the share of its processor time that probes took in all of a process with a duty cycle, in ten-thousandths.
    pub fn set_reached(&mut self, pid: u32, reached: u32) {
        self.ledger.set_reached(pid, reached);
    }

    /// Records that a process is probed again.
    pub fn resume(&mut self, pid: u32, elapsed_ns: u64) {
        self.paused.resume(&mut self.ledger, pid, elapsed_ns);
    }
}
