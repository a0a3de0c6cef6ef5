//! The scheduling priority of the thread that reads the streams.
//!
//! Part of the session. Must not know the streams.

use std::time::{Duration, Instant};

use crate::sys::{self, ThreadPriority};

/// How long this thread stays before all others after it was last behind. Between two large batches there are small ones,
/// for instance of a timer; with its own priority the thread may then wait longer than the ring has room.
const CALM: Duration = Duration::from_millis(250);

/// The priority of this thread: ordinary, raised (nice), or before all other threads (`SCHED_FIFO`).
pub(super) struct Priority {
    nice: ThreadPriority,
    /// Whether this thread runs before all others.
    is_first: bool,
    /// When it was last behind.
    behind_at: Option<Instant>,
}

impl Priority {
    pub(super) fn of_this_thread() -> Self {
        Self {
            nice: ThreadPriority::of_this_thread(),
            is_first: false,
            behind_at: None,
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

    /// Runs this thread before all others while it is behind, and for a while after that. Needed while events come
    /// faster than the thread gets to read them: among a thousand threads that allocate, its share of a processor is too
    /// small, even with raised priority.
    pub(super) fn follow(&mut self, is_behind: bool) {
        let now = Instant::now();
        if is_behind {
            self.behind_at = Some(now);
        }
        self.set_first(self.behind_at.is_some_and(|at| now - at < CALM));
    }

    fn set_first(&mut self, is_first: bool) {
        if is_first != self.is_first {
            sys::set_realtime(is_first);
            self.is_first = is_first;
        }
    }
}
