//! The scheduling priority of the thread that reads the streams.
//!
//! Part of the session. Must not know the streams.

use crate::sys::{self, ThreadPriority};

/// The priority of this thread: ordinary, raised (nice), or before all other threads (`SCHED_FIFO`).
pub(super) struct Priority {
    nice: ThreadPriority,
    /// Whether this thread runs before all others.
    is_first: bool,
}

impl Priority {
    pub(super) fn of_this_thread() -> Self {
        Self {
            nice: ThreadPriority::of_this_thread(),
            is_first: false,
        }
    }

    /// Raises the priority, for reading: among a hundred threads that allocate, an ordinary thread would get a
    /// hundredth of a processor.
    pub(super) fn raise(&self) {
        self.nice.raise();
    }

    /// Restores the ordinary priority, for work on the events: looking up names and writing files are no more
    /// urgent than the work of other processes.
    pub(super) fn restore(&mut self) {
        self.set_first(false);
        self.nice.restore();
    }

    /// Runs this thread before all others, or no longer. Needed while events come faster than the thread gets
    /// to read them: among a thousand threads that allocate, its share of a processor is too small, even with
    /// raised priority.
    pub(super) fn set_first(&mut self, is_first: bool) {
        if is_first != self.is_first {
            sys::set_realtime(is_first);
            self.is_first = is_first;
        }
    }
}
