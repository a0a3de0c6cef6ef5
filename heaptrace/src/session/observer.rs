//! What a run reports: its beginning, its updates and its end.
//!
//! Part of the session. Must not know what is done with the updates.

use std::process::ExitStatus;

use anyhow::Result;

use crate::join::{OpenFiles, Update};
use crate::profile::RunInfo;

/// Receives the updates of a run. An error ends the run in order.
pub trait Observer {
    /// The run has begun: every call is recorded from here on.
    fn started(&mut self, info: &RunInfo) -> Result<()>;
    /// Receives the changes since the last call; also called once at the end. Names can be looked up in the
    /// files.
    fn update(&mut self, update: Update, files: &OpenFiles) -> Result<()>;
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
