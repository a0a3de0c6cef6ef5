//! The events of the target processes' threads, in a run for a command or for `--pid`.
//!
//! Stage: probes. Opens the events thread by thread; new threads and children inherit them. Must not know which files
//! the events are defined in.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use thiserror::Error;

use super::perf_events::{InheritedBy, close_in_order, open_inherited};
use crate::proc::processes::threads;

/// Which processes the probes reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every process, from its first instruction on.
    All,
    /// Processes that the session names, one by one, without their children.
    OneByOne,
    /// The target processes and their descendants.
    Tree,
    /// The target processes with their new threads, but without child processes.
    Processes,
}

/// A process that can't be probed.
#[derive(Debug, Error)]
pub enum AttachError {
    /// It does not exist.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// It ended meanwhile.
    #[error("process {0} ended while heaptrace was attaching to it")]
    Ended(u32),
}

/// Open events of the targets' threads.
pub(super) struct TargetEvents {
    inherited_by: InheritedBy,
    /// Whether inherited events stay with their task.
    keeps_contexts: bool,
    open: Vec<OwnedFd>,
}

impl TargetEvents {
    /// No events yet.
    pub(super) fn new(reach: Reach, keeps_contexts: bool) -> Self {
        let inherited_by = match reach {
            Reach::Processes => InheritedBy::Threads,
            Reach::All | Reach::OneByOne | Reach::Tree => InheritedBy::ThreadsAndChildren,
        };
        Self {
            inherited_by,
            keeps_contexts,
            open: Vec::new(),
        }
    }

    /// Opens these events for every thread of a process that has none yet.
    pub(super) fn add_process(&mut self, pid: u32, events: &[u64]) -> Result<()> {
        let mut done = HashSet::new();
        // A thread that starts meanwhile inherits from a done one, or is found in the next round.
        loop {
            let threads = threads(pid).map_err(|_| gone(pid, &done))?;
            let new: Vec<u32> = threads
                .into_iter()
                .filter(|tid| !done.contains(tid))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            for tid in new {
                let is_first = done.is_empty();
                for event in events {
                    match self.open(*event, tid) {
                        Ok(()) => {}
                        // One of several threads may end at any time.
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                            if is_first && count_threads(pid) == 0 {
                                return Err(AttachError::Ended(pid).into());
                            }
                            break;
                        }
                        Err(error) => {
                            return Err(error)
                                .with_context(|| format!("can't probe process {pid}"));
                        }
                    }
                }
                done.insert(tid);
            }
        }
    }

    /// Opens further events for a process that has some, if the process still exists.
    pub(super) fn extend_process(&mut self, pid: u32, events: &[u64]) -> Result<()> {
        // A process that has ended, and a thread that ends meanwhile, need nothing.
        for tid in threads(pid).unwrap_or_default() {
            for event in events {
                match self.open(*event, tid) {
                    Ok(()) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break,
                    Err(error) => {
                        return Err(error).with_context(|| format!("can't probe process {pid}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds descriptors that others opened, to be closed with these.
    pub(super) fn adopt(&mut self, open: Vec<OwnedFd>) {
        self.open.extend(open);
    }

    /// Closes all of them while the run goes on.
    pub(super) fn pause(&mut self) {
        close_in_order(self.take());
    }

    /// Takes all descriptors out.
    pub(super) fn take(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.open)
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    fn open(&mut self, event: u64, tid: u32) -> io::Result<()> {
        let opened = open_inherited(event, tid, self.inherited_by, self.keeps_contexts)?;
        self.open.push(opened);
        Ok(())
    }
}

fn gone(pid: u32, done: &HashSet<u32>) -> anyhow::Error {
    if done.is_empty() {
        AttachError::NoProcess(pid).into()
    } else {
        AttachError::Ended(pid).into()
    }
}

fn count_threads(pid: u32) -> usize {
    threads(pid).map_or(0, |threads| threads.len())
}
