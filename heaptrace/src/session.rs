//! A run, from attaching to its last update: the only place that wires the stages.
//!
//! Knows nothing of the command line, nor of what an [`Observer`] does with the updates.

use std::path::PathBuf;
use std::process::ExitStatus;

use crate::config::RunConfig;
use crate::join::{Module, ModuleId, Update};
use crate::probes::capabilities;
use crate::profile::RunInfo;
use crate::symbolize::ModuleFiles;

/// Whoever wants to know what a run finds. An error ends the run, in order.
pub trait Observer {
    /// The run begins.
    fn started(&mut self, info: &RunInfo) -> anyhow::Result<()>;
    /// What changed since the last call; also called once at the end.
    fn update(&mut self, update: Update) -> anyhow::Result<()>;
}

/// The files that were mapped into traced processes, held open.
#[derive(Debug, Default)]
pub struct OpenFiles;

impl ModuleFiles for OpenFiles {
    fn path(&self, _id: ModuleId, _module: &Module) -> Option<PathBuf> {
        None
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    /// How it was made.
    pub info: RunInfo,
    /// How long it took.
    pub duration_ns: u64,
    /// Exit status of a launched command that has ended.
    pub exit: Option<ExitStatus>,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// The files in which names can be looked up.
    pub files: OpenFiles,
    /// What the user should know, one sentence each.
    pub notes: Vec<String>,
}

/// Traces as asked, until the targets end, the time is over or a signal comes.
pub fn run(_config: &RunConfig, _observer: &mut dyn Observer) -> anyhow::Result<Finished> {
    capabilities::require()?;
    anyhow::bail!("this build can't trace")
}
