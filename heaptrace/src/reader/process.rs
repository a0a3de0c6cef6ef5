//! The process of a reader: how it is started, recognized and ended.
//!
//! No stage of the flow. A reader is this same program, started anew with an empty environment and one descriptor. A fork
//! would have a copy of the tracer's memory, and the tracer's rights until it gives them up.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::channel::Channel;

/// The first argument (`argv[0]`) of a reader, by which the program knows that it must serve as one.
const NAME: &str = "heaptrace: reader";

/// The only environment variable of a reader: its memory limit in bytes.
const MEMORY: &str = "HEAPTRACE_READER_MEMORY";

/// The memory limit without that variable.
const DEFAULT_MEMORY: u64 = 256 << 20;

/// The kind of the message by which a reader says that it runs. No job has this number.
pub(super) const RUNS: u32 = 0;

/// The longest time that a reader may take to start. Its program may have to come from a slow disk.
const MAX_START: Duration = Duration::from_secs(15);

/// Locked for reading while a reader starts. See [`while_none_starts`].
static STARTS: RwLock<()> = RwLock::new(());

/// The program that serves as a reader.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Declares that this program serves when it is started as a reader.
pub fn serves() {
    served_by(own_path().unwrap_or_else(|| PathBuf::from(OWN)));
}

/// The kernel's link to this program, which is valid even if the program's path is not.
const OWN: &str = "/proc/self/exe";

/// The path of this program, if the program is still there. Preferred to `/proc/self/exe` because the kernel names a
/// process by the last part of the path that it was started by.
fn own_path() -> Option<PathBuf> {
    let path = std::fs::read_link(OWN).ok()?;
    let identity = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    (identity(&path)? == identity(Path::new(OWN))?).then_some(path)
}

/// Declares which program serves as a reader.
pub fn served_by(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// Whether this process was started as a reader.
pub fn is_asked_to_read() -> bool {
    let mut words = std::env::args_os();
    words.next().as_deref() == Some(OsStr::new(NAME)) && words.next().is_none()
}

/// The memory limit of this reader, in bytes.
pub(super) fn asked_memory() -> u64 {
    let asked = std::env::var(MEMORY).ok();
    asked
        .and_then(|it| it.parse().ok())
        .unwrap_or(DEFAULT_MEMORY)
}

/// Runs this while no reader starts. A reader that starts has copies of all descriptors of the tracer, until it runs its
/// program. If they are the last ones of probes, the reader, and what waits for it, waits until the kernel has removed
/// these probes.
pub fn while_none_starts<T>(run: impl FnOnce() -> T) -> T {
    let _none_starts = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    run()
}

/// A running reader.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pub(super) channel: Channel,
}

impl Process {
    pub(super) fn start(memory: u64) -> io::Result<Self> {
        let program = PROGRAM.get().ok_or_else(|| {
            io::Error::other("this program did not declare which program serves as a reader")
        })?;
        let (own, other) = UnixStream::pair()?;
        let starting = STARTS.read().unwrap_or_else(PoisonError::into_inner);
        let child = Command::new(program)
            .arg0(NAME)
            .env_clear()
            .env(MEMORY, memory.to_string())
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut process = Self {
            child,
            channel: Channel::from(own),
        };
        process.wait_until_it_runs()?;
        drop(starting);
        Ok(process)
    }

    /// Waits for the first message. If the reader ended before it, the first question will say so.
    fn wait_until_it_runs(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        let first = self.channel.receive_watched(0, || {
            if begin.elapsed() > MAX_START {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            Ok(())
        });
        match first {
            Ok(message) if message.kind == RUNS => Ok(()),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Its id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a reader that closed its stream, and returns its exit status. A sound reader closes it only by its end.
    pub(super) fn ended(mut self) -> Option<ExitStatus> {
        // For a reader that closed its stream and still runs. The status of an ended process does not change.
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Process {
    /// Ends the process. A process that was waited for gets no signal.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Describes how a reader ended.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "unknown".to_owned(),
    }
}
