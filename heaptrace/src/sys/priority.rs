//! The scheduling priority of a thread.
//!
//! Part of `sys`. The one `unsafe` call is `sched_setscheduler`, which rustix lacks.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};

/// Gives this thread a real-time priority, or takes it away: with it, the thread runs before all ordinary threads. A
/// process that the thread starts meanwhile doesn't inherit the priority. Best effort.
pub fn set_realtime(is_realtime: bool) {
    let (policy, sched_priority) = if is_realtime {
        (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)
    } else {
        (libc::SCHED_OTHER, 0)
    };
    let param = libc::sched_param { sched_priority };
    // SAFETY: the struct is valid; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const param) };
    if result < 0 {
        let error = io::Error::last_os_error();
        tracing::info!("can't change this thread's real-time priority: {error}");
    }
}

/// The niceness that a thread was started with. The thread can raise its priority for a while and then restore it. Best
/// effort.
#[derive(Clone, Copy, Debug)]
pub struct ThreadPriority {
    own: i32,
}

impl ThreadPriority {
    /// The calling thread's.
    pub fn of_this_thread() -> Self {
        let own = getpriority_process(None).unwrap_or(-1);
        Self { own }
    }

    /// Sets the highest priority of ordinary threads. A thread that was started with less than the default priority keeps
    /// its own.
    pub fn raise(self) {
        if self.own <= 0 {
            set_nice(-20);
        }
    }

    /// Sets the priority that the thread was started with.
    pub fn restore(self) {
        set_nice(self.own);
    }
}

/// Sets the niceness of the calling thread: the kernel's call for a process changes one thread only.
fn set_nice(nice: i32) {
    if let Err(error) = setpriority_process(None, nice) {
        tracing::info!("can't change this thread's priority: {error}");
    }
}
