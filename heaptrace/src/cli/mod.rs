//! The command line: from words to a plain configuration, and from there to the stages.
//!
//! No stage of the flow; it may use them all, and none uses it.

mod args;
mod choices;
mod convert;
mod destination;
mod doctor;
mod input;
mod live;
mod logging;
mod message;
mod namer;
mod naming;
mod offline;
mod overhead;
mod parse;
mod placements;
mod record;
mod report;
mod rotation;
mod run_args;
mod values;

use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::Context as _;

use crate::config::{NamedAllocator, RunConfig};
use crate::output::{Filter, Label, Metric};
use crate::probes::launch::LaunchError;
use crate::sandbox::{Kept, rights};

pub use parse::{Stop, parse};
pub use report::Ranking;
pub use rotation::{Limit, Rotation};

/// A command line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// What to do.
    pub action: Action,
    /// How often `-v` was given.
    pub verbosity: u8,
    /// Whether to use colors.
    pub color: Color,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Trace and show.
    Live {
        /// The run.
        run: RunConfig,
        /// What comes first.
        ranking: Ranking,
    },
    /// Trace and write a data file.
    Record {
        /// The run.
        run: RunConfig,
        /// The data file.
        output: PathBuf,
        /// When a new data file begins.
        rotate: Option<Rotation>,
    },
    /// Show a data file.
    Report {
        /// The data file.
        input: Input,
        /// For people or for programs.
        format: Format,
        /// What comes first.
        ranking: Ranking,
    },
    /// List the snapshots of a data file.
    Snapshots {
        /// The data file.
        input: Input,
        /// For people or for programs.
        format: Format,
    },
    /// Draw a data file.
    Flamegraph {
        /// The data file.
        input: Input,
        /// The SVG file.
        output: PathBuf,
        /// What widths stand for.
        metric: Metric,
        /// What stands at the root.
        by: Option<Label>,
    },
    /// Convert a data file.
    Pprof {
        /// The data file.
        input: Input,
        /// The profile.
        output: PathBuf,
    },
    /// Look at the machine.
    Doctor {
        /// Processes to look at.
        pids: Vec<u32>,
        /// Files that are allocators by the user's word.
        allocators: Vec<NamedAllocator>,
    },
    /// Say where probes go.
    Placements {
        /// Files of allocators.
        files: Vec<PathBuf>,
    },
}

/// A data file, and what of it is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The file.
    pub file: PathBuf,
    /// The time of the run that is looked at; its end, where nothing is said.
    pub at: Option<Duration>,
    /// What must fit.
    pub filters: Vec<Filter>,
    /// Most memory for what it holds; otherwise it follows from the length of the file.
    pub max_memory: Option<u64>,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Whether to use colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// On a terminal, unless the user's environment says no.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

impl Color {
    /// Whether to color what goes to this stream.
    fn for_stream(self, stream: &impl IsTerminal) -> bool {
        let unwanted = |name: &str, value: Option<&str>| {
            std::env::var_os(name).is_some_and(|is| match value {
                Some(value) => is == *value,
                None => !is.is_empty(),
            })
        };
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                stream.is_terminal()
                    && !unwanted("NO_COLOR", None)
                    && !unwanted("TERM", Some("dumb"))
            }
        }
    }
}

/// Does what was asked for.
pub fn run(invocation: Invocation) -> anyhow::Result<ExitCode> {
    logging::start(invocation.verbosity, invocation.color);
    let color = invocation.color;
    if !invocation.action.traces() && !rustix::process::geteuid().is_root() {
        // A file that a group may run has rights of its own. They are for tracing, and reach no file that is only read.
        rights::keep(Kept::empty()).context("can't give up rights that only tracing needs")?;
    }
    match invocation.action {
        Action::Live { run, ranking } => live::run(&run, ranking, color),
        Action::Record {
            run,
            output,
            rotate,
        } => record::run(&run, output, rotate),
        Action::Report {
            input,
            format,
            ranking,
        } => report::run(&input, format, ranking, color),
        Action::Snapshots { input, format } => report::snapshots(&input, format),
        Action::Flamegraph {
            input,
            output,
            metric,
            by,
        } => convert::flamegraph(&input, &output, metric, by),
        Action::Pprof { input, output } => convert::pprof(&input, &output),
        Action::Doctor { pids, allocators } => doctor::run(&pids, &allocators, color),
        Action::Placements { files } => placements::run(&files),
    }
}

impl Action {
    /// Whether it takes the rights that tracing takes, or says whether they are there.
    fn traces(&self) -> bool {
        matches!(
            self,
            Self::Live { .. } | Self::Record { .. } | Self::Doctor { .. }
        )
    }
}

/// The exit code of a run that failed: a command that can't be started gets a shell's.
pub fn failure_code(error: &anyhow::Error) -> ExitCode {
    error
        .downcast_ref::<LaunchError>()
        .map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
}

/// The exit code that passes a command's status on, as a shell would: 128 and the signal's number
/// for a command that was killed.
fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(shell_code(status))
}

fn shell_code(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every status of a command comes out as a shell would show it.
    #[test]
    fn statuses_are_passed_on() {
        // As wait(2) gives them: the code in the second byte, the signal in the first.
        assert_eq!(shell_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(shell_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(shell_code(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(shell_code(ExitStatus::from_raw(libc::SIGKILL)), 137);
        // With a core dump.
        assert_eq!(shell_code(ExitStatus::from_raw(0x80 | libc::SIGSEGV)), 139);
    }
}
