//! Which processes have memory from before the run.
//!
//! Stage: join. Knows nothing of how memory is measured.

use std::collections::HashSet;

/// The begin of a run that traces processes that were already running.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// When the run began, nanoseconds on the boot clock; 0 if it traces only processes that start later.
    began: u64,
    /// Processes that have begun another program since. `exec` drops all memory.
    execed: HashSet<u32>,
}

impl Earlier {
    /// Sets the begin of the run.
    pub(super) fn set_begin(&mut self, boot_ns: u64) {
        self.began = boot_ns;
    }

    /// Records that a process began another program.
    pub(super) fn exec(&mut self, pid: u32) {
        self.execed.insert(pid);
    }

    /// Whether all of a process's memory is from the time in which it was traced: it began its program then.
    pub(super) fn is_traced_from_its_beginning(&self, pid: u32) -> bool {
        self.execed.contains(&pid)
    }

    /// Forgets a process that has ended.
    pub(super) fn exited(&mut self, pid: u32) {
        self.execed.remove(&pid);
    }

    /// Whether a process with this start time, on the boot clock, has memory from before the run.
    pub(super) fn has(&self, pid: u32, start_time: u64) -> bool {
        start_time < self.began && !self.execed.contains(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only processes that were there before, and still run the same program, have earlier memory.
    #[test]
    fn a_later_program_has_no_earlier_memory() {
        let mut earlier = Earlier::default();
        assert!(!earlier.has(1, 0));
        earlier.set_begin(10);
        assert!(earlier.has(1, 9) && !earlier.has(1, 10));
        earlier.exec(1);
        assert!(!earlier.has(1, 9));
        earlier.exited(1);
        assert!(earlier.has(1, 9));
    }
}
