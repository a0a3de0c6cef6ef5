//! What the join reads from a process. It is read when an event arrives, also if the event is joined later: the process may end.
//!
//! Stage: join.

use heaptrace_common::wire::ProcessBegin;

use super::Joiner;
use crate::join::update::{Memory, Process};
use crate::join::{command_line, processes, threads};
use crate::proc::group_text::GroupText;
use crate::proc::memory;

impl Joiner {
    /// Reads what is known of a process that begins.
    pub fn read_process(&mut self, event: &ProcessBegin) -> Process {
        let pid = event.tgid;
        let allocators = self.addresses.allocators_of(pid, event.time);
        let command = processes::name(&event.comm);
        let resident = memory::resident(pid).unwrap_or_default();
        let mut groups = GroupText::of(pid);
        let cgroup = self.cgroups.of(&mut groups, event.cgroup);
        self.memory_groups
            .begin(event.process, &mut groups, &cgroup);
        let covered = self.coverage.of(pid, event.time);
        let resident_before = match covered {
            Some((_, resident)) => resident,
            None if self.earlier.has(pid, event.start_time) => resident.now,
            None => 0,
        };
        Process {
            pid,
            start_time_ns: event.start_time,
            command_line: command_line::of(pid, &command),
            command,
            cgroup,
            allocators,
            memory: Memory {
                resident: resident.now,
                peak_resident: resident.peak,
                resident_before,
            },
            traced: covered.map(|(traced, _)| traced),
            ..Process::default()
        }
    }

    /// Joins the beginning of a process.
    pub fn begin_process(&mut self, event: &ProcessBegin, record: Process) {
        self.ledger.begin(event, record);
    }

    /// Reads the name of a thread of a process whose beginning may not be joined yet, if names are asked for.
    pub fn read_thread(&mut self, pid: Option<u32>, process: u64, tid: u32, time: u64) {
        let Some(threads) = &mut self.threads else {
            return;
        };
        let processes = self.ledger.processes();
        let entry = processes.id(process).and_then(|id| processes.get(id));
        if let Some(pid) = entry.map(|it| it.record().pid).or(pid) {
            threads.name(process, tid, time, || threads::read_name(pid, tid));
        }
    }
}
