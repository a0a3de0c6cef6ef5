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
    InheritedBy, close_in_order, has_lost_its_thread, open_for_all, open_for_thread, open_inherited,
};
use crate::proc::processes::{has_memory, processes, threads};
use crate::sys;

/// Most events of one file's processes that have their own, whatever the limit of open files is. A process beyond this
/// is paused together with the selected ones.
const MOST_OWN: u64 = 16_384;

/// Threads of a process that get events. Processes that other threads start are reached when the file is resumed for all.
const MOST_THREADS: usize = 16;

/// Which processes get an event that is opened for one.
#[derive(Clone, Copy)]
enum Own {
    /// The process alone.
    Alone,
    /// Also the children that it starts from now on. `keeps_contexts`: whether the kernel lets inherited events stay with
    /// the task that they were opened for.
    WithChildren { keeps_contexts: bool },
}

/// The probes of a file.
///
/// In a run that reaches processes one by one, each process has events of its own, and no event reaches any other. One
/// thread's events are enough, because the kernel sets breakpoints in memory, which all threads share. A process is paused by closing its events.
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

    /// Opens events for processes, each alone, unless they have them or are paused. Returns those for which that failed.
    ///
    /// The kernel visits every process that has mapped the file for each event of each process. `at_once` makes it visit
    /// them twice instead. Every process of the machine is probed meanwhile, so nothing must be recorded.
    pub(super) fn reach(&mut self, pids: &[u32], at_once: bool) -> io::Result<Vec<u32>> {
        let for_all = if at_once {
            let opened = self.events.iter().map(|event| open_for_all(*event));
            opened.collect::<io::Result<Vec<_>>>()?
        } else {
            Vec::new()
        };
        let pids = pids.iter().copied();
        let failed =
            pids.filter(|pid| !self.paused.contains(pid) && !self.open_own(*pid, Own::Alone));
        let failed = failed.collect();
        close_in_order(for_all);
        Ok(failed)
    }

    /// Whether a process has events of its own, or is paused.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.own.contains_key(&pid) || self.paused.contains(&pid)
    }

    /// Closes the events of a process that has ended, or whose thread with the events has.
    pub(super) fn leave(&mut self, pid: u32) {
        close_in_order(self.own.remove(&pid).unwrap_or_default());
        self.paused.remove(&pid);
    }

    /// Whether the thread of a process that has its events has ended.
    pub(super) fn has_lost_thread(&self, pid: u32) -> bool {
        let first = self.own.get(&pid).and_then(|own| own.first());
        first.is_some_and(has_lost_its_thread)
    }

    /// Pauses exactly these of the processes that have events of their own, and resumes all others.
    pub(super) fn pause_reached(&mut self, pids: &BTreeSet<u32>) -> io::Result<()> {
        let resumed: Vec<u32> = self.paused.difference(pids).copied().collect();
        for pid in resumed {
            if !self.open_own(pid, Own::Alone) {
                return Err(io::Error::other("no events of its own could be opened"));
            }
            self.paused.remove(&pid);
        }
        for pid in pids {
            if let Some(own) = self.own.remove(pid) {
                close_in_order(own);
                self.paused.insert(*pid);
            }
        }
        Ok(())
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
                if !self.open_own(pid, Own::WithChildren { keeps_contexts }) {
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
            self.open_own(pid, Own::WithChildren { keeps_contexts });
        }
    }

    /// Opens events of its own for a process. Returns false if there is no room for them.
    fn open_own(&mut self, pid: u32, own: Own) -> bool {
        if self.own.contains_key(&pid) {
            return true;
        }
        let most_threads = match own {
            Own::Alone => 1,
            Own::WithChildren { .. } => MOST_THREADS,
        };
        let tids = threads_with_memory(pid, most_threads);
        let most = MOST_OWN.min(sys::most_open_files() / 2);
        if (self.count() + self.events.len() * tids.len()) as u64 > most {
            return false;
        }
        let mut opened_own = Vec::new();
        for (event, tid) in tids
            .iter()
            .flat_map(|tid| self.events.iter().zip(repeat(*tid)))
        {
            // Children inherit the events and are reached from their first instruction. Kernels that would swap
            // inherited events between relatives get events that are not inherited.
            let opened = match own {
                Own::WithChildren {
                    keeps_contexts: true,
                } => open_inherited(*event, tid, InheritedBy::ThreadsAndChildren, true),
                _ => open_for_thread(*event, tid),
            };
            match opened {
                Ok(event) => opened_own.push(event),
                // The thread has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(_) => return false,
            }
        }
        self.own.insert(pid, opened_own);
        true
    }
}

/// The first threads of a process that have memory: neither kernel threads nor threads that have ended. One thread would
/// be enough for the process itself; the others are for the children that they start.
fn threads_with_memory(pid: u32, most: usize) -> Vec<u32> {
    let threads = threads(pid).unwrap_or_default();
    threads
        .into_iter()
        .filter(|tid| has_memory(*tid))
        .take(most)
        .collect()
}
