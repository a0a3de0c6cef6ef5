//! A reader as a process: how one is started, known and ended.
//!
//! No stage of the flow. It is this very program, started anew with an empty environment and one descriptor: a fork
//! would have the tracer's memory, and its rights until it gave them up.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use super::channel::Channel;

/// What a reader is called: its first word, by which it knows what it is for.
const NAME: &str = "heaptrace: reader";

/// The variable in which a reader is told how much memory it may take, its only one.
const MEMORY: &str = "HEAPTRACE_READER_MEMORY";

/// What it may take if it is told nothing.
const DEFAULT_MEMORY: u64 = 256 << 20;

/// The program that serves as a reader.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Says that this program serves when it is started as a reader.
pub fn serves() {
    served_by(own_path().unwrap_or_else(|| PathBuf::from(OWN)));
}

/// The kernel's link to this program, which leads to it whatever became of its path.
const OWN: &str = "/proc/self/exe";

/// The path of this program, if it is still there: a process is called by the last part of the path that it was started by.
fn own_path() -> Option<PathBuf> {
    let path = std::fs::read_link(OWN).ok()?;
    let identity = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    (identity(&path)? == identity(Path::new(OWN))?).then_some(path)
}

/// Says which program does.
pub fn served_by(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// Whether this process was started as a reader.
pub fn is_asked_to_read() -> bool {
    let mut words = std::env::args_os();
    words.next().as_deref() == Some(OsStr::new(NAME)) && words.next().is_none()
}

/// How much memory this reader may take.
pub(super) fn asked_memory() -> u64 {
    let asked = std::env::var(MEMORY).ok();
    asked
        .and_then(|it| it.parse().ok())
        .unwrap_or(DEFAULT_MEMORY)
}

/// A reader that runs.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pub(super) channel: Channel,
}

impl Process {
    pub(super) fn start(memory: u64) -> io::Result<Self> {
        let program = PROGRAM.get().ok_or_else(|| {
            io::Error::other("this program does not say which one serves as a reader")
        })?;
        let (own, other) = UnixStream::pair()?;
        let child = Command::new(program)
            .arg0(NAME)
            .env_clear()
            .env(MEMORY, memory.to_string())
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            child,
            channel: Channel::from(own),
        })
    }

    /// Its id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for one that closed its stream, which it does only by ending, and says how it ended.
    pub(super) fn ended(mut self) -> Option<ExitStatus> {
        // One that did close it otherwise; what has ended is not changed by that.
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Process {
    /// Ends it. One that has ended and was waited for gets no signal.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In words, how a reader ended.
pub(super) fn told(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "unknown".to_owned(),
    }
}
