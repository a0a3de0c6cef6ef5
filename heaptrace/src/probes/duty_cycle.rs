//! Whom the probes of a file reach, and whom they are to leave alone for a while.
//!
//! Stage: probes. In a run for all, one event for each probe reaches everybody, and the kernel knows no "everybody
//! but". So where one process is to be left alone, every other one gets events of its own, and the event for
//! everybody goes; the kernel then takes the breakpoints out of whoever nobody wants. What the others start
//! inherits from them. Programs and definitions stay, so that a turn is a matter of milliseconds. Knows nothing of
//! who decides whom to leave alone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::iter::repeat;
use std::os::fd::OwnedFd;

use super::attach::{Probes, Reach, STAYS_WITH_ITS_TASK, attributes};
use crate::open::FileId;
use crate::proc::maps;
use crate::proc::processes::{processes, threads};
use crate::sys::{self, PerfTarget};

/// Most events of the processes that have their own, whatever descriptors there may be; who finds no place is
/// left alone together with those that are to be.
const MOST_OWN: u64 = 16_384;

/// Threads of a process that get events: what the others start is reached when it is next everybody's turn.
const MOST_THREADS: usize = 16;

/// The probes of a file.
#[derive(Default)]
pub(super) struct Reached {
    /// Ids of the events, in the order in which they have to be opened.
    pub(super) events: Vec<u64>,
    /// Those that reach everybody, in a run for all.
    pub(super) everybody: Vec<OwnedFd>,
    /// Those of single processes.
    own: HashMap<u32, Vec<OwnedFd>>,
    /// Who is left alone.
    paused: BTreeSet<u32>,
}

impl Reached {
    pub(super) fn count(&self) -> usize {
        self.everybody.len() + self.own.values().map(Vec::len).sum::<usize>()
    }

    pub(super) fn take(&mut self) -> Vec<OwnedFd> {
        let mut all = std::mem::take(&mut self.everybody);
        all.extend(self.own.drain().flat_map(|(_, own)| own));
        all
    }

    /// Leaves just these processes alone. Returns those who are left alone with them.
    ///
    /// `stays`: whether the kernel lets events stay with the process that they were made for.
    fn turn(&mut self, wanted: BTreeSet<u32>, stays: bool) -> io::Result<Vec<u32>> {
        if self.paused == wanted {
            return Ok(Vec::new());
        }
        let mut unlucky = Vec::new();
        if wanted.is_empty() {
            for event in self.events.get(self.everybody.len()..).unwrap_or_default() {
                self.everybody.push(everybody(*event)?);
            }
            // Everybody is reached: those of ended processes can go, and what they let others inherit.
            self.own
                .retain(|pid, _| fs::exists(format!("/proc/{pid}")).unwrap_or(false));
        } else {
            let everyone = if self.everybody.is_empty() {
                self.paused.iter().copied().collect()
            } else {
                processes()?
            };
            for pid in everyone.into_iter().filter(|pid| !wanted.contains(pid)) {
                if !self.reach_alone(pid, stays) {
                    unlucky.push(pid);
                }
            }
            for pid in &wanted {
                close_in_order(self.own.remove(pid).unwrap_or_default());
            }
            close_in_order(std::mem::take(&mut self.everybody));
        }
        self.paused = wanted;
        Ok(unlucky)
    }

    /// Gives a process events of its own. False where there are no more to be had.
    fn reach_alone(&mut self, pid: u32, stays: bool) -> bool {
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
            let mut attr = attributes(*event);
            // What the process starts is reached from its first instruction on. Kernels that would swap such
            // events between relatives do without.
            if stays {
                attr.set_inherit(1);
                attr.sample_type = STAYS_WITH_ITS_TASK;
            }
            match sys::perf_event_open(&mut attr, PerfTarget::Thread(tid)) {
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

/// Lets an event reach everybody.
pub(super) fn everybody(event: u64) -> io::Result<OwnedFd> {
    sys::perf_event_open(&mut attributes(event), PerfTarget::Cpu(0))
}

/// Closes events so that none of their calls is seen that can't be seen to its end: allocations, frees, and
/// returns at last.
fn close_in_order(mut events: Vec<OwnedFd>) {
    while events.pop().is_some() {}
}

impl Probes {
    /// Leaves just these processes alone, in a run for all. Returns those for whom the events of their own could not be
    /// had, and who are left alone with them.
    pub fn pause(&mut self, pids: &BTreeSet<u32>) -> io::Result<Vec<u32>> {
        let mut unlucky = Vec::new();
        let files: HashMap<u32, HashSet<FileId>> =
            pids.iter().map(|pid| (*pid, self.files_of(*pid))).collect();
        for (id, file) in &mut self.defined {
            let wanted: BTreeSet<u32> = files
                .iter()
                .filter(|(_, files)| files.contains(id))
                .map(|(pid, _)| *pid)
                .collect();
            unlucky.append(&mut file.turn(wanted, self.keeps_contexts)?);
        }
        Ok(unlucky)
    }

    /// Gives a process that has just been born events of its own, where it would not be reached.
    pub fn reach_newborn(&mut self, pid: u32, parent: u32) {
        for file in self.defined.values_mut() {
            if file.paused.contains(&parent) && !file.paused.contains(&pid) {
                file.reach_alone(pid, self.keeps_contexts);
            }
        }
    }

    /// The probed files that a process has mapped.
    fn files_of(&self, pid: u32) -> HashSet<FileId> {
        let thread = maps::living_thread(pid);
        let text = maps::read(thread).unwrap_or_default();
        let mut seen = HashSet::new();
        maps::parse(&text)
            .filter(|mapping| mapping.executable && mapping.inode != 0)
            .filter(|mapping| seen.insert((mapping.device, mapping.inode)))
            .filter_map(|mapping| Some(maps::open_mapped(thread, &mapping).ok()?.identity.file))
            .filter(|id| self.has(*id))
            .collect()
    }

    /// Reaches a target again, or what it has started meanwhile.
    pub fn reach_again(&mut self, pid: u32) -> anyhow::Result<()> {
        let ids: Vec<FileId> = self.defined.keys().copied().collect();
        for id in ids {
            self.reach_process(id, pid)?;
        }
        Ok(())
    }

    /// Leaves the targets alone, in a run for some processes and what they start.
    pub fn leave_targets_alone(&mut self) {
        if self.reach != Reach::All {
            close_in_order(std::mem::take(&mut self.threads));
        }
    }
}

/// The threads through which a process is reached, and what they start; none of the kernel's own ones, and of those
/// that have ended. One would do for the process itself.
fn threads_with_memory(pid: u32) -> Vec<u32> {
    let has_memory = |tid: &u32| fs::read_link(format!("/proc/{tid}/exe")).is_ok();
    let threads = threads(pid).unwrap_or_default();
    threads
        .into_iter()
        .filter(has_memory)
        .take(MOST_THREADS)
        .collect()
}
