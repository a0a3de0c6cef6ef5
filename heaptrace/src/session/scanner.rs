//! Scans files for allocators while a run is under way.
//!
//! Part of the session. The scanner has a thread of its own: a large program takes a while to scan, and the
//! ring would fill meanwhile. Must not know which files are probed, nor how.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::waiting::Waiting;
use crate::config::{NamedAllocator, RunConfig};
use crate::open::Opened;
use crate::probes::allocators::{self, Found, LookFor};
use crate::proc::owner::Owner;
use crate::reader::{Budget, Limits, Reader};
use crate::sys::{self, ThreadPriority};

/// Most files that wait for the scanner; each of them is open.
const MOST_WAITING: u64 = 1 << 14;

/// Most results that wait to be probed. Further files wait in the queue, which is fair to all owners.
const MOST_RESULTS: usize = 4;

/// A file that a process has mapped.
pub(super) struct Mapped {
    pub(super) pid: u32,
    pub(super) file: Opened,
    pub(super) path: String,
}

/// The allocators of a scanned file, and the owner of the process that mapped it.
pub(super) struct Scanned {
    pub(super) owner: Owner,
    pub(super) found: Found,
}

/// A thread that scans files. When this is dropped, the thread ends after its current file.
pub(super) struct Scanner {
    queue: Arc<Queue>,
    results: Receiver<Scanned>,
    /// Files that were sent to the scanner and have no result yet.
    pending: u64,
    dropped: u64,
}

impl Scanner {
    pub(super) fn new(config: &RunConfig, budget: &Budget) -> Result<Self> {
        let room = MOST_WAITING.min(sys::most_open_files() / 8);
        let queue = Arc::new(Queue {
            state: Mutex::new(State {
                files: Waiting::new(room as usize),
                is_over: false,
            }),
            changed: Condvar::new(),
        });
        let (sender, results) = channel(MOST_RESULTS);
        let mut reader = Reader::new(budget, Limits::default());
        let named = config.allocators.clone();
        let mappings = config.mappings;
        let files = Arc::clone(&queue);
        std::thread::Builder::new()
            .name("heaptrace-scan".to_owned())
            .spawn(move || scan_all(&mut reader, &named, mappings, &files, &sender))
            .context("can't start a thread")?;
        Ok(Self {
            queue,
            results,
            pending: 0,
            dropped: 0,
        })
    }

    /// Adds a file to the queue.
    pub(super) fn scan(&mut self, owner: Owner, mapped: Mapped) {
        let dropped = {
            let mut state = self.queue.state();
            state.files.push(owner, mapped);
            state.files.dropped()
        };
        self.queue.changed.notify_one();
        self.pending = (self.pending + 1).saturating_sub(dropped - self.dropped);
        self.dropped = dropped;
    }

    /// Waits for the next result.
    pub(super) async fn scanned(&mut self) -> Scanned {
        match self.results.recv().await {
            Some(scanned) => {
                self.pending = self.pending.saturating_sub(1);
                scanned
            }
            None => std::future::pending().await,
        }
    }

    /// Number of files that are not scanned yet.
    pub(super) fn waiting(&self) -> u64 {
        self.pending
    }

    /// Number of files that were dropped for want of room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.queue.state().is_over = true;
        self.queue.changed.notify_one();
    }
}

/// The files that wait, shared with the scanner's thread.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    files: Waiting<Mapped>,
    is_over: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next file; returns `None` when the scanner ends.
    fn next(&self) -> Option<(Owner, Mapped)> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(next) = state.files.pop() {
                return Some(next);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn scan_all(
    reader: &mut Reader,
    named: &[NamedAllocator],
    mappings: bool,
    files: &Queue,
    results: &Sender<Scanned>,
) {
    // Hurry: the allocations of a new program are not seen before it is probed.
    ThreadPriority::of_this_thread().raise();
    while let Some((owner, Mapped { pid, file, path })) = files.next() {
        let wanted = LookFor { named, mappings };
        let found = allocators::of_mapped(reader, pid, file, path, wanted);
        if results.blocking_send(Scanned { owner, found }).is_err() {
            return;
        }
    }
}
