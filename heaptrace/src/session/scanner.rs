//! Looks for allocators in files as they come, on a thread of its own: a large program takes a while to look into,
//! and the ring fills meanwhile.
//!
//! Part of the session. Knows neither what is probed nor how.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context as _, Result};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::config::{NamedAllocator, RunConfig};
use crate::open::Opened;
use crate::probes::allocators::{self, Found, LookFor};
use crate::reader::{Budget, Limits, Reader};
use crate::sys::Precedence;

/// Most files that wait; each is open.
const MOST_WAITING: usize = 1 << 10;

/// A file that a process has mapped.
pub(super) struct Mapped {
    pub(super) pid: u32,
    pub(super) file: Opened,
    pub(super) path: String,
}

/// See the head of this file. The thread ends with it, and with the file that it is at.
pub(super) struct Scanner {
    files: SyncSender<Mapped>,
    found: UnboundedReceiver<Found>,
    /// Files that were taken and are not looked into yet.
    waiting: usize,
}

impl Scanner {
    pub(super) fn new(config: &RunConfig, budget: &Budget) -> Result<Self> {
        let (files, to_look_into) = sync_channel(MOST_WAITING);
        let (tell, found) = unbounded_channel();
        let mut reader = Reader::new(budget, Limits::default());
        let named = config.allocators.clone();
        let mappings = config.mappings;
        std::thread::Builder::new()
            .name("heaptrace-scan".to_owned())
            .spawn(move || scan(&mut reader, &named, mappings, &to_look_into, &tell))
            .context("can't start a thread")?;
        Ok(Self {
            files,
            found,
            waiting: 0,
        })
    }

    /// Looks into a file in its turn; false where too many wait already.
    pub(super) fn look(&mut self, mapped: Mapped) -> bool {
        let is_taken = self.files.try_send(mapped).is_ok();
        self.waiting += usize::from(is_taken);
        is_taken
    }

    /// Waits for what is in the next file.
    pub(super) async fn found(&mut self) -> Found {
        match self.found.recv().await {
            Some(found) => {
                self.waiting -= 1;
                found
            }
            None => std::future::pending().await,
        }
    }

    /// Files that are not looked into yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

fn scan(
    reader: &mut Reader,
    named: &[NamedAllocator],
    mappings: bool,
    files: &Receiver<Mapped>,
    tell: &UnboundedSender<Found>,
) {
    // What a new program allocates before it is probed is not seen.
    Precedence::of_this_thread().take();
    for Mapped { pid, file, path } in files {
        let wanted = LookFor { named, mappings };
        let found = allocators::of_mapped(reader, pid, file, path, wanted);
        if tell.send(found).is_err() {
            return;
        }
    }
}
