//! Debug files from the network, by build id: asks `debuginfod-find`, which belongs to elfutils.
//!
//! Stage: symbolize. That program knows the servers (`DEBUGINFOD_URLS`), and keeps what it gets where other tools look, too. Limits that the
//! user has not set are set here. What it returns is no more trusted than any other file: it counts only if it has the build id. Must
//! not know what names are for.

use std::collections::HashSet;
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The variable with the servers' addresses.
const URLS: &str = "DEBUGINFOD_URLS";

/// The program.
const PROGRAM: &str = "debuginfod-find";

/// Limits, unless the user has set others: seconds without progress, seconds in all, and bytes.
const LIMITS: [(&str, &str); 3] = [
    ("DEBUGINFOD_TIMEOUT", "30"),
    ("DEBUGINFOD_MAXTIME", "300"),
    ("DEBUGINFOD_MAXSIZE", "2147483648"),
];

/// Most files that are asked for in a run: each may take as long as the limits allow.
const MOST: usize = 1000;

/// A way to get debug files from servers.
#[derive(Clone, Debug)]
pub struct Debuginfod {
    /// What was asked for already.
    asked: HashSet<Vec<u8>>,
    /// Is told what is asked for.
    report: fn(&str),
}

/// Why there is no such way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDebuginfod {
    /// The user has named no server.
    NoServer,
    /// The program is not installed.
    NoProgram,
}

impl Debuginfod {
    /// The way that the environment describes. `report` is told the name of each file that is asked for.
    pub fn from_environment(report: fn(&str)) -> Result<Self, NoDebuginfod> {
        if env::var_os(URLS).is_none_or(|urls| urls.is_empty()) {
            return Err(NoDebuginfod::NoServer);
        }
        let folders = env::var_os("PATH").unwrap_or_default();
        if !env::split_paths(&folders).any(|folder| folder.join(PROGRAM).is_file()) {
            return Err(NoDebuginfod::NoProgram);
        }
        Ok(Self {
            asked: HashSet::new(),
            report,
        })
    }

    /// Gets the debug file of a build of the file with this name, once.
    pub(super) fn fetch(&mut self, build_id: &[u8], name: &str) -> Option<PathBuf> {
        if self.asked.len() >= MOST || !self.asked.insert(build_id.to_vec()) {
            return None;
        }
        (self.report)(name);
        let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut command = Command::new(PROGRAM);
        command.args(["debuginfo", &hex]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        for (variable, value) in LIMITS {
            if env::var_os(variable).is_none() {
                command.env(variable, value);
            }
        }
        let output = command.output().ok()?;
        let path = output.stdout.trim_ascii_end();
        let is_there = output.status.success() && path.starts_with(b"/");
        is_there.then(|| PathBuf::from(OsStr::from_bytes(path)))
    }
}
