//! The servers of debug files that the environment names, and what users are told of them.
//!
//! Part of the command line. Must not know what is asked of servers.

use std::io::{self, IsTerminal as _};

use super::message;
use crate::symbolize::{Debuginfod, NoDebuginfod};

/// The servers that the environment names. Says if they can't be asked.
pub(super) fn servers() -> Option<Debuginfod> {
    match Debuginfod::from_environment(report) {
        Ok(debuginfod) => Some(debuginfod),
        Err(NoDebuginfod::NoServer) => None,
        Err(NoDebuginfod::NoProgram) => {
            message::warn(
                "DEBUGINFOD_URLS is set, but debuginfod-find is not installed (Debian: apt install debuginfod)",
            );
            None
        }
    }
}

/// On a terminal, because it may take long.
fn report(asked: &str) {
    if io::stderr().is_terminal() {
        message::note(format_args!("asking debuginfod for {asked}"));
    }
}
