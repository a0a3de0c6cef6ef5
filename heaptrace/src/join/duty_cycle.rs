//! Processes in a duty cycle: which of them are paused, and for how long.
//!
//! Stage: join. While a process is paused, the frees of its blocks may be missed. So everything that it has
//! when a pause begins is uncertain from then on: counted apart from what is live for certain. Frees that are
//! seen are joined all the same, and so is the proof that an address was handed out again. Does not decide
//! which process is paused.

use super::ledger::Ledger;
use super::update::ProcessId;

/// The processes that are paused now.
#[derive(Debug, Default)]
pub(super) struct PausedProcesses {
    list: Vec<Paused>,
}

#[derive(Clone, Copy, Debug)]
struct Paused {
    process: ProcessId,
    serial: u64,
    /// Up to when its pause is counted, in nanoseconds since the run began.
    counted: u64,
}

impl PausedProcesses {
    /// Pauses a process. Returns it unless it is paused already.
    pub(super) fn pause(
        &mut self,
        ledger: &mut Ledger,
        pid: u32,
        overhead: u32,
        elapsed_ns: u64,
        time: u64,
    ) -> Option<ProcessId> {
        let process = ledger.processes().running(pid)?;
        if self.list.iter().any(|it| it.process == process) {
            return None;
        }
        let serial = ledger.pause(process, overhead, elapsed_ns, time)?;
        self.list.push(Paused {
            process,
            serial,
            counted: elapsed_ns,
        });
        Some(process)
    }

    /// Ends the pause of a process.
    pub(super) fn resume(&mut self, ledger: &mut Ledger, pid: u32, elapsed_ns: u64) {
        self.count_time(ledger, elapsed_ns);
        let process = ledger.processes().running(pid);
        self.list.retain(|it| Some(it.process) != process);
    }

    /// Adds the time up to now to the pauses of all paused processes, and drops the ended ones.
    pub(super) fn count_time(&mut self, ledger: &mut Ledger, elapsed_ns: u64) {
        self.list.retain_mut(|it| {
            let since = elapsed_ns.saturating_sub(it.counted);
            it.counted = elapsed_ns;
            ledger.add_unprobed_time(it.process, it.serial, since)
        });
    }
}

#[cfg(test)]
mod tests {
    use heaptrace_common::wire::end;

    use super::*;
    use crate::join::Process;
    use crate::join::tests::{PID, process_begin, process_end};

    /// Check that a process that ends during its pause leaves the list of paused processes.
    #[test]
    fn ended_processes_leave_the_list() {
        let mut ledger = Ledger::default();
        let record = Process {
            pid: PID,
            ..Process::default()
        };
        ledger.begin(&process_begin(1), record);
        let mut paused = PausedProcesses::default();
        let process = paused.pause(&mut ledger, PID, 8000, 1000, 50).unwrap();
        assert_eq!(paused.pause(&mut ledger, PID, 8000, 1500, 60), None);
        paused.count_time(&mut ledger, 2000);
        assert_eq!(paused.list.len(), 1);
        ledger.end(process, &process_end(1, end::EXIT));
        paused.resume(&mut ledger, PID, 4000);
        assert!(paused.list.is_empty());
    }
}
