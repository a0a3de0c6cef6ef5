//! What a run reports: its beginning, its updates and its end.
//!
//! Part of the session. Must not know what is done with the updates.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;

use anyhow::Result;

use crate::join::{OpenFiles, Update};
use crate::profile::RunInfo;
use crate::tty::Restorer;

/// Work of a run that may take a while, before the first update or after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Processes are searched for allocators.
    Searching {
        /// The processes that were searched.
        done: usize,
        /// All processes.
        all: usize,
    },
    /// The unwind tables of the targets are read.
    ReadingTables,
    /// Files with allocators are probed.
    Attaching {
        /// The files that are probed.
        done: usize,
        /// All files.
        all: usize,
    },
    /// The run has ended, and the probes are removed.
    Detaching,
}

/// What an observer asks of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The run goes on.
    Continue,
    /// What is allocated from now on is to be told apart.
    Mark,
    /// The run ends in order, as by Ctrl-C.
    End,
}

/// Receives the updates of a run. An error ends the run in order.
pub trait Observer {
    /// A terminal that this observer changes. It is restored also if this process is killed.
    fn terminal(&self) -> Option<&Restorer> {
        None
    }
    /// Something that may take a while has begun or got further.
    fn progress(&mut self, _progress: Progress) {}
    /// The run has begun: every call is recorded from here on.
    fn started(&mut self, info: &RunInfo) -> Result<()>;
    /// Whether the update that comes next, at this time of the run, must have all live blocks, and the memory of processes.
    fn wants_live_blocks(&self, _elapsed_ns: u64) -> bool {
        false
    }
    /// Receives the changes since the last call; also called once at the end. Names can be looked up in the
    /// files.
    fn update(&mut self, update: Update, files: &OpenFiles) -> Result<()>;
    /// A descriptor with input for this observer, which may ask for something at any time.
    fn input(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
    /// Called when there is input, and several times a second.
    fn look(&mut self, _files: &OpenFiles) -> Result<Wish> {
        Ok(Wish::Continue)
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    /// How the run was made.
    pub info: RunInfo,
    /// How long the run took, in nanoseconds.
    pub duration_ns: u64,
    /// Exit status of a launched command that has ended.
    pub exit: Option<ExitStatus>,
    /// Whether a signal ended the run.
    pub interrupted: bool,
    /// The files in which names can be looked up.
    pub files: OpenFiles,
    /// Sentences for the user.
    pub notes: Vec<String>,
}
