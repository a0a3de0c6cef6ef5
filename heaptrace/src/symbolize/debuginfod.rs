//! Debug files and source files from the network, by build id: asks `debuginfod-find`, which belongs to elfutils.
//!
//! Stage: symbolize. That program knows the servers (`DEBUGINFOD_URLS`), and keeps what it gets where other tools look, too. Limits that the
//! user has not set are set here. What it returns is no more trusted than any other file: it counts only if it has the build id. Must
//! not know what names are for.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// The variable with the servers' addresses.
const URLS: &str = "DEBUGINFOD_URLS";

/// The program.
const PROGRAM: &str = "debuginfod-find";

/// Limits, unless the user has set others: seconds without progress, and seconds in all.
const LIMITS: [(&str, &str); 2] = [("DEBUGINFOD_TIMEOUT", "30"), ("DEBUGINFOD_MAXTIME", "300")];

/// The variable with the most bytes of a file, and its value for debug files and for source files unless the user has set another.
const MOST_BYTES: &str = "DEBUGINFOD_MAXSIZE";
const MOST_OF_DEBUG: &str = "2147483648";
const MOST_OF_SOURCE: &str = "16777216";

/// The shortest build id that is asked for, in bytes.
pub(super) const MIN_BUILD_ID: usize = 8;

/// Most files that are asked for in a run: each may take as long as the limits allow.
const MOST: usize = 1000;

/// A way to get debug files from servers. Clones share what they get.
#[derive(Clone, Debug)]
pub struct Debuginfod {
    /// What was asked for, and what came of it. One file at a time is asked for.
    answers: Arc<Mutex<HashMap<Question, Option<PathBuf>>>>,
    /// Is told what is asked for.
    report: fn(&str),
}

/// A build id, and the path of a source file; without it, the debug file.
type Question = (Vec<u8>, Option<String>);

/// Why there is no such way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDebuginfod {
    /// The user has named no server.
    NoServer,
    /// The program is not installed.
    NoProgram,
}

impl Debuginfod {
    /// The way that the environment describes. `report` is told of each file that is asked for.
    pub fn from_environment(report: fn(&str)) -> Result<Self, NoDebuginfod> {
        if env::var_os(URLS).is_none_or(|urls| urls.is_empty()) {
            return Err(NoDebuginfod::NoServer);
        }
        let folders = env::var_os("PATH").unwrap_or_default();
        if !env::split_paths(&folders).any(|folder| folder.join(PROGRAM).is_file()) {
            return Err(NoDebuginfod::NoProgram);
        }
        Ok(Self {
            answers: Arc::default(),
            report,
        })
    }

    /// Gets the debug file of a build of the file with this name, once.
    pub(super) fn fetch(&self, build_id: &[u8], name: &str) -> Option<PathBuf> {
        self.find(build_id, None, &format!("the debug file of {name}"))
    }

    /// Gets the source file that a build names by an absolute path, once.
    pub fn fetch_source(&self, build_id: &[u8], path: &str) -> Option<PathBuf> {
        if !path.starts_with('/') {
            return None;
        }
        self.find(build_id, Some(path), path)
    }

    /// Gets a file of a build: a source file, or else the debug file. `what` are the words for it.
    fn find(&self, build_id: &[u8], source: Option<&str>, what: &str) -> Option<PathBuf> {
        let question = (build_id.to_vec(), source.map(ToOwned::to_owned));
        let answers = self.answers.lock();
        let mut answers = answers.unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(&question) {
            return answer.clone();
        }
        if build_id.len() < MIN_BUILD_ID || answers.len() >= MOST {
            return None;
        }
        (self.report)(what);
        let answer = ask(build_id, source);
        answers.insert(question, answer.clone());
        answer
    }
}

/// Asks the program for a file of a build.
fn ask(build_id: &[u8], source: Option<&str>) -> Option<PathBuf> {
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new(PROGRAM);
    let most = match source {
        Some(path) => {
            command.args(["source", &hex, path]);
            MOST_OF_SOURCE
        }
        None => {
            command.args(["debuginfo", &hex]);
            MOST_OF_DEBUG
        }
    };
    command.stdin(Stdio::null()).stderr(Stdio::null());
    for (variable, value) in LIMITS.into_iter().chain([(MOST_BYTES, most)]) {
        if env::var_os(variable).is_none() {
            command.env(variable, value);
        }
    }
    let output = command.output().ok()?;
    let path = output.stdout.trim_ascii_end();
    let is_there = output.status.success() && path.starts_with(b"/");
    is_there.then(|| PathBuf::from(OsStr::from_bytes(path)))
}
