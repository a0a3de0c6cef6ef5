//! The options of `heaptrace record`.
//!
//! Part of the command line. Must not know how a data file is written.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::block_args::Blocks;
use super::choices::probes;
use super::invocation::Action;
use super::rotation::Rotation;
use super::run_args::Run;
use crate::config::{Probes, RunConfig};

#[derive(Debug, Args)]
pub(super) struct Record {
    #[command(flatten)]
    run: Run,
    /// The data file to write.
    ///
    /// An existing data file is replaced.
    #[arg(short, long, value_name = "FILE", default_value = "heaptrace.data")]
    output: PathBuf,
    /// Begin a new file after this size or time, e.g. 64MiB or 1h [default: one file].
    ///
    /// Older files are kept as FILE.1, FILE.2 and so on. KEEP is the number of files that are kept, with FILE
    /// itself, e.g. 1h,24 [default: 5]. Use it for runs without end.
    #[arg(long, value_name = "SIZE|TIME[,KEEP]", value_parser = Rotation::parse)]
    rotate: Option<Rotation>,
    #[command(flatten)]
    blocks: Blocks,
    /// Run this command in a shell when the kernel has killed a traced process for lack of memory.
    ///
    /// The data file has the process's last state by then. HEAPTRACE_FILE, HEAPTRACE_PID and HEAPTRACE_COMMAND in the environment are the
    /// file, the process and its name: put them in quotes. Under sudo, the command runs as the user that called sudo. It is run 16 times at
    /// most, one after the other, for a minute each at most.
    #[arg(long, value_name = "CMD")]
    on_oom: Option<OsString>,
    /// The work of the probes: `full` records, `empty` does nothing (for benchmarks)
    #[arg(long, hide = true, default_value = "full", value_parser = probes())]
    probes: Probes,
}

impl Record {
    /// Why options can't be used together, if they can't.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        self.run.contradiction().or(self.blocks.contradiction())
    }

    /// The action; `None` if no target is named.
    pub(super) fn into_action(self, verbose: bool) -> Option<Action> {
        Some(Action::Record {
            run: RunConfig {
                inspect_live: self.blocks.inspects(),
                reachable: self.blocks.reachable,
                max_stop: self.blocks.max_stop,
                blocks: self.blocks.into(),
                ..self.run.into_config(self.probes, verbose)?
            },
            output: self.output,
            rotate: self.rotate,
            on_oom: self.on_oom,
        })
    }
}
