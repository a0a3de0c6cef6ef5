//! Perf events of defined uprobes: how each kind is opened, and how many are closed.
//!
//! Stage: probes. The other files decide which threads an event reaches. Must not know allocators or kernel programs.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aya_obj::generated::{
    perf_event_attr,
    perf_event_sample_format::{PERF_SAMPLE_READ, PERF_SAMPLE_TID},
    perf_sw_ids, perf_type_id,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::{self, PerfTarget};

/// Threads that close events in parallel: each close waits for the kernel's grace periods.
const CLOSERS: usize = 32;

/// Sample fields of inherited events.
///
/// A kernel swaps the perf contexts of parent and child when it schedules one after the other, because
/// as counters they are interchangeable. As probes they are not: a child that exits would take its
/// parent's probes away. Events whose samples read their own value are exempt.
const STAYS_WITH_ITS_TASK: u64 = PERF_SAMPLE_READ as u64 | PERF_SAMPLE_TID as u64;

/// Which tasks inherit an event from its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InheritedBy {
    /// New threads and child processes.
    ThreadsAndChildren,
    /// New threads of the same process only.
    Threads,
}

/// Opens an event that reaches every process.
pub(super) fn open_for_all(event: u64) -> io::Result<OwnedFd> {
    sys::perf_event_open(&mut attributes(event), PerfTarget::Cpu(0))
}

/// Opens an event that reaches one thread and is not inherited.
pub(super) fn open_for_thread(event: u64, tid: u32) -> io::Result<OwnedFd> {
    sys::perf_event_open(&mut attributes(event), PerfTarget::Thread(tid))
}

/// Opens an event that reaches a thread and is inherited. `keeps_contexts`: see [`keeps_contexts`].
pub(super) fn open_inherited(
    event: u64,
    tid: u32,
    by: InheritedBy,
    keeps_contexts: bool,
) -> io::Result<OwnedFd> {
    let mut attr = attributes(event);
    attr.set_inherit(1);
    attr.set_inherit_thread(u64::from(by == InheritedBy::Threads));
    if keeps_contexts {
        attr.sample_type = STAYS_WITH_ITS_TASK;
    }
    sys::perf_event_open(&mut attr, PerfTarget::Thread(tid))
}

/// Whether the thread that an event reaches has ended. The event reaches nothing then, also if other threads of the
/// process go on.
pub(super) fn has_lost_its_thread(event: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(event, PollFlags::empty())];
    let result = poll(&mut polled, Some(&Timespec::default()));
    result.is_ok()
        && polled
            .iter()
            .any(|it| it.revents().contains(PollFlags::HUP))
}

/// Whether the kernel (since 6.12) accepts inherited events that stay with the task that they were opened for.
pub(super) fn keeps_contexts() -> bool {
    // SAFETY: the struct is plain integers, for which zero means "nothing requested".
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.type_ = perf_type_id::PERF_TYPE_SOFTWARE as u32;
    attr.config = perf_sw_ids::PERF_COUNT_SW_DUMMY as u64;
    attr.sample_type = STAYS_WITH_ITS_TASK;
    attr.set_disabled(1);
    attr.set_inherit(1);
    let opened = sys::perf_event_open(&mut attr, PerfTarget::Thread(0));
    !matches!(opened, Err(error) if error.raw_os_error() == Some(libc::EINVAL))
}

/// Closes events in any order, in parallel.
pub(super) fn close_all(mut open: Vec<OwnedFd>) {
    std::thread::scope(|scope| {
        let share = open.len().div_ceil(CLOSERS).max(1);
        while !open.is_empty() {
            let part = open.split_off(open.len().saturating_sub(share));
            // If no thread can be started, the closure is dropped, which closes its part.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(part));
        }
    });
}

/// Closes events in any order, in parallel, until this time is over. Returns those that are left.
pub(super) fn close_for(time: Duration, open: Vec<OwnedFd>) -> Vec<OwnedFd> {
    let end = Instant::now() + time;
    let closers = open.len().min(CLOSERS);
    let left = Mutex::new(open);
    let next = || {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        (Instant::now() < end).then(|| left.pop()).flatten()
    };
    std::thread::scope(|scope| {
        for _ in 0..closers {
            // If no thread can be started, the others close its share, or it is left.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || while next().is_some() {});
        }
    });
    left.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Closes events in reverse order: allocations, then frees, then returns. So no call is seen that can't be
/// seen to its end.
pub(super) fn close_in_order(mut events: Vec<OwnedFd>) {
    while events.pop().is_some() {}
}

fn attributes(event: u64) -> perf_event_attr {
    // SAFETY: the struct is plain integers, for which zero means "nothing requested".
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.type_ = perf_type_id::PERF_TYPE_TRACEPOINT as u32;
    attr.config = event;
    // Nothing has to be counted: a disabled event is not scheduled with its thread, and its program
    // runs all the same.
    attr.set_disabled(1);
    attr
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<OwnedFd> {
        let files = (0..100).map(|_| std::fs::File::open("/dev/null").unwrap().into());
        files.collect()
    }

    /// Check that all are closed if there is time, and that the rest is returned if there is none.
    #[test]
    fn the_rest_is_returned() {
        assert!(close_for(Duration::from_secs(60), some()).is_empty());
        assert_eq!(close_for(Duration::ZERO, some()).len(), 100);
        assert!(close_for(Duration::ZERO, Vec::new()).is_empty());
    }
}
