//! The probes of one file: which processes they reach, and which are paused.
//!
//! Stage: probes. Opens and closes the events of a file's probes in a run for all processes. Must not know why a process
//! is paused.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::iter::repeat;
use std::os::fd::OwnedFd;

use super::perf_events::{
    InheritedBy, close_in_order, open_for_all, open_for_thread, open_inherited,
};
use crate::proc::processes::{processes, threads};
use crate::sys;

/// Most events of one file's processes that have their own, whatever the limit of open files is. A process beyond this
/// is paused together with the selected ones.
const MOST_OWN: u64 = 16_384;

/// Threads of a process that get events. Processes that other threads start are reached when the file is resumed for all.
const MOST_THREADS: usize = 16;

/// The probes of a file.
///
/// In a run for all processes, one event for each probe reaches every process. The kernel can't exclude a process from
/// such an event. To pause a process, every other process gets events of its own, and the event for all is closed. The
/// kernel then removes the breakpoints from processes that no event reaches. New children inherit the events of their
/// parents. Programs and definitions stay, so pausing and resuming take milliseconds.
#[derive(Default)]
pub(super) struct ProbedFile {
    /// Ids of the events, in the order in which they have to be opened.
    events: Vec<u64>,
    /// Open events that reach every process, in a run for all.
    for_all: Vec<OwnedFd>,
    /// Open events of single processes.
    own: HashMap<u32, Vec<OwnedFd>>,
    /// Processes that are paused.
    paused: BTreeSet<u32>,
}

impl ProbedFile {
    /// Adds a defined event; `for_all`: opens it for every process as well.
    pub(super) fn add(&mut self, event: u64, for_all: bool) -> io::Result<()> {
        self.events.push(event);
        if for_all {
            self.for_all.push(open_for_all(event)?);
        }
        Ok(())
    }

    /// Ids of the defined events.
    pub(super) fn events(&self) -> &[u64] {
        &self.events
    }

    /// How many events are open.
    pub(super) fn count(&self) -> usize {
        self.for_all.len() + self.own.values().map(Vec::len).sum::<usize>()
    }

    /// Takes all open events out.
    pub(super) fn take(&mut self) -> Vec<OwnedFd> {
        let mut all = std::mem::take(&mut self.for_all);
        all.extend(self.own.drain().flat_map(|(_, own)| own));
        all
    }

    /// Pauses exactly these processes, and resumes all others. Returns those that are paused only because events of
    /// their own could not be opened.
    ///
    /// `keeps_contexts`: whether the kernel lets inherited events stay with the task that they were opened for.
    pub(super) fn pause(
        &mut self,
        pids: BTreeSet<u32>,
        keeps_contexts: bool,
    ) -> io::Result<Vec<u32>> {
        if self.paused == pids {
            return Ok(Vec::new());
        }
        let mut without_events = Vec::new();
        if pids.is_empty() {
            for event in self.events.get(self.for_all.len()..).unwrap_or_default() {
                self.for_all.push(open_for_all(*event)?);
            }
            // Every process is reached again. So events of ended processes, and what others inherited from them, can go.
            self.own
                .retain(|pid, _| fs::exists(format!("/proc/{pid}")).unwrap_or(false));
        } else {
            let candidates = if self.for_all.is_empty() {
                self.paused.iter().copied().collect()
            } else {
                processes()?
            };
            for pid in candidates.into_iter().filter(|pid| !pids.contains(pid)) {
                if !self.open_own(pid, keeps_contexts) {
                    without_events.push(pid);
                }
            }
            for pid in &pids {
                close_in_order(self.own.remove(pid).unwrap_or_default());
            }
            close_in_order(std::mem::take(&mut self.for_all));
        }
        self.paused = pids;
        Ok(without_events)
    }

    /// Opens events for a new process whose parent is paused, because it inherits none.
    pub(super) fn reach_newborn(&mut self, pid: u32, parent: u32, keeps_contexts: bool) {
        if self.paused.contains(&parent) && !self.paused.contains(&pid) {
            self.open_own(pid, keeps_contexts);
        }
    }

    /// Opens events of its own for a process. Returns false if there is no room for them.
    fn open_own(&mut self, pid: u32, keeps_contexts: bool) -> bool {
        if self.own.contains_key(&pid) {
            return true;
        }
        let tids = threads_with_memory(pid);
        let most = MOST_OWN.min(sys::most_open_files() / 2);
        if (self.count() + self.events.len() * tids.len()) as u64 > most {
            return false;
        }
        let mut own = Vec::new();
        for (event, tid) in tids
            .iter()
            .flat_map(|tid| self.events.iter().zip(repeat(*tid)))
        {
            // Children inherit the events and are reached from their first instruction. Kernels that would swap
            // inherited events between relatives get events that are not inherited.
            let opened = if keeps_contexts {
                open_inherited(*event, tid, InheritedBy::ThreadsAndChildren, true)
            } else {
                open_for_thread(*event, tid)
            };
            match opened {
                Ok(event) => own.push(event),
                // The thread has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(_) => return false,
            }
        }
        self.own.insert(pid, own);
        true
    }
}

/// The first threads of a process that have memory: neither kernel threads nor threads that have ended. One thread would
/// be enough for the process itself; the others are for the children that they start.
fn threads_with_memory(pid: u32) -> Vec<u32> {
    let has_memory = |tid: &u32| fs::read_link(format!("/proc/{tid}/exe")).is_ok();
    let threads = threads(pid).unwrap_or_default();
    threads
        .into_iter()
        .filter(has_memory)
        .take(MOST_THREADS)
        .collect()
}
