//! Looks for allocators in files as they come, on a thread of its own: a large program takes a while to look into,
//! and the ring fills meanwhile.
//!
//! Part of the session. Knows neither what is probed nor how.

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

/// Most files that wait; each is open.
const MOST_WAITING: u64 = 1 << 14;

/// Most results that wait to be probed: further files wait where turns are fair.
const MOST_FOUND: usize = 4;

/// A file that a process has mapped.
pub(super) struct Mapped {
    pub(super) pid: u32,
    pub(super) file: Opened,
    pub(super) path: String,
}

/// What is in a file of this owner.
pub(super) struct Scanned {
    pub(super) owner: Owner,
    pub(super) found: Found,
}

/// See the head of this file. The thread ends with it, and with the file that it is at.
pub(super) struct Scanner {
    queue: Arc<Queue>,
    found: Receiver<Scanned>,
    /// Files that the thread has taken or is going to take.
    pending: u64,
    left_out: u64,
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
        let (tell, found) = channel(MOST_FOUND);
        let mut reader = Reader::new(budget, Limits::default());
        let named = config.allocators.clone();
        let mappings = config.mappings;
        let files = Arc::clone(&queue);
        std::thread::Builder::new()
            .name("heaptrace-scan".to_owned())
            .spawn(move || scan(&mut reader, &named, mappings, &files, &tell))
            .context("can't start a thread")?;
        Ok(Self {
            queue,
            found,
            pending: 0,
            left_out: 0,
        })
    }

    /// Looks into a file in its turn.
    pub(super) fn look(&mut self, owner: Owner, mapped: Mapped) {
        let left_out = {
            let mut state = self.queue.state();
            state.files.push(owner, mapped);
            state.files.left_out()
        };
        self.queue.changed.notify_one();
        self.pending = (self.pending + 1).saturating_sub(left_out - self.left_out);
        self.left_out = left_out;
    }

    /// Waits for what is in the next file.
    pub(super) async fn found(&mut self) -> Scanned {
        match self.found.recv().await {
            Some(scanned) => {
                self.pending = self.pending.saturating_sub(1);
                scanned
            }
            None => std::future::pending().await,
        }
    }

    /// Files that are not looked into yet.
    pub(super) fn waiting(&self) -> u64 {
        self.pending
    }

    /// Files that were left out for want of room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.queue.state().is_over = true;
        self.queue.changed.notify_one();
    }
}

/// The files that wait, and whoever waits for them.
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

    /// Waits for the next file; `None` at the end.
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

fn scan(
    reader: &mut Reader,
    named: &[NamedAllocator],
    mappings: bool,
    files: &Queue,
    tell: &Sender<Scanned>,
) {
    // What a new program allocates before it is probed is not seen.
    ThreadPriority::of_this_thread().raise();
    while let Some((owner, Mapped { pid, file, path })) = files.next() {
        let wanted = LookFor { named, mappings };
        let found = allocators::of_mapped(reader, pid, file, path, wanted);
        if tell.blocking_send(Scanned { owner, found }).is_err() {
            return;
        }
    }
}
