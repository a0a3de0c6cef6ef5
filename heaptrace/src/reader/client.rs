//! The tracer's side: asks a reader, and bears with whatever becomes of it.
//!
//! No stage of the flow. A reader that fails costs the file that it was at, which is noted, and a new one is started for
//! the next. Answers are bytes of a process that may be in a stranger's hands: whoever asked checks them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::budget::{Budget, Owner};
use super::channel::{self, MAX_FILES};
use super::message::{Job, decode, encode};
use super::process::{self, Process};
use crate::sys;

/// How long a reader may not get on, on the clock: it was stopped, or waits for a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a question may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processor time.
    pub time: Duration,
    /// Bytes of memory.
    pub memory: u64,
}

impl Default for Limits {
    /// Enough for the largest programs there are.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(10),
            memory: 1 << 30,
        }
    }
}

/// Why a file could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unreadable {
    /// It takes longer than a file may.
    #[error("it takes longer to read than a file may ({} s of a processor)", .0.as_secs())]
    Slow(Duration),
    /// Its owner's files have taken all the time that there is for them.
    #[error(
        "the files of its owner (user {0}) have taken all the time that there is for reading them"
    )]
    UsedUp(u32),
    /// It takes more memory than a file may, or the reader found itself in a state that can't be.
    #[error("reading it takes more memory than a file may, or fails")]
    Failed,
    /// It became shorter meanwhile.
    #[error("it was cut short while it was read")]
    CutShort,
    /// The reader did not get on.
    #[error("its reader did not get on for {} s", .0.as_secs())]
    Stuck(Duration),
    /// The reader was ended by somebody else.
    #[error("its reader was ended ({0})")]
    Ended(String),
    /// The answer is none.
    #[error("its reader gave no answer that makes sense")]
    Nonsense,
    /// There is no reader.
    #[error("no process can be started to read it: {0}")]
    NoReader(String),
}

/// The stream failed, or nobody wants to wait any more.
enum Broken {
    Stream(io::Error),
    GivenUp(Unreadable),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Stream(error)
    }
}

/// Most processes that one reader keeps: each for the files of another owner.
const MOST_PROCESSES: usize = 4;

/// Reads files by way of processes without rights, one for each owner of files: who has taken over the one that reads his
/// own has nobody else's.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    budget: Budget,
    /// The one that was used last stands last.
    processes: Vec<(Owner, Process)>,
    #[cfg(test)]
    thread: Option<channel::Channel>,
}

impl Reader {
    /// One that is started with the first question.
    pub fn new(budget: &Budget, limits: Limits) -> Self {
        Self {
            limits,
            budget: budget.clone(),
            processes: Vec::new(),
            #[cfg(test)]
            thread: None,
        }
    }

    /// One that answers in a thread of this process, for tests of what is asked.
    #[cfg(test)]
    pub(crate) fn in_thread(
        make: impl FnOnce() -> Box<super::serve::Handler<'static>> + Send + 'static,
    ) -> Self {
        use super::serve::{Clock, serve};
        let (own, other) = std::os::unix::net::UnixStream::pair().unwrap();
        std::thread::spawn(move || serve(channel::Channel::from(other), Clock::None, &mut make()));
        let mut reader = Self::new(&Budget::default(), Limits::default());
        reader.thread = Some(channel::Channel::from(own));
        reader
    }

    /// Asks about files, the first of which is the one that is named if it can't be read.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        job: Job,
        question: &impl Serialize,
        name: &str,
        files: &[&File],
    ) -> Result<A, Unreadable> {
        let bytes = self.ask_bytes(job, question, name, files)?;
        decode(&bytes)
            .ok_or(Unreadable::Nonsense)
            .inspect_err(|it| {
                self.budget.note(name, it);
            })
    }

    /// The same where the answer is bytes of a form of its own.
    pub fn ask_bytes(
        &mut self,
        job: Job,
        question: &impl Serialize,
        name: &str,
        files: &[&File],
    ) -> Result<Vec<u8>, Unreadable> {
        let question = encode(question);
        let mut answer = self.answer(job, &question, files);
        if let Err(Unreadable::Ended(_)) = answer {
            // Somebody else ended it: that is not the file's doing.
            answer = self.answer(job, &question, files);
        }
        if let Err(reason) = &answer {
            tracing::debug!("{name}: {reason}");
            self.budget.note(name, reason);
        }
        answer
    }

    fn answer(
        &mut self,
        job: Job,
        question: &[u8],
        files: &[&File],
    ) -> Result<Vec<u8>, Unreadable> {
        let Some(owner) = files.first().map(|file| Owner::of(file)) else {
            return Err(Unreadable::Nonsense);
        };
        let limit = self.limits.time.min(self.budget.left(owner));
        if limit.is_zero() {
            return Err(Unreadable::UsedUp(owner.user));
        }
        let files: Vec<_> = files.iter().take(MAX_FILES).map(|it| it.as_fd()).collect();
        let mut body = (limit.as_millis() as u64).to_le_bytes().to_vec();
        body.extend(question);
        #[cfg(test)]
        if let Some(channel) = &mut self.thread {
            let patient = || Ok::<(), Broken>(());
            let sent = channel.send_watched(job as u32, &body, &files, patient);
            let answered = sent.and_then(|()| channel.receive_watched(job.most_bytes(), patient));
            return answered.map(|it| it.body).map_err(|_| Unreadable::Failed);
        }
        let mut process = self.process_of(owner)?;
        let mut watch = Watch::new(process.pid(), limit);
        let sent = process
            .channel
            .send_watched(job as u32, &body, &files, || watch.look());
        let answered = sent.and_then(|()| {
            let most = job.most_bytes();
            process.channel.receive_watched(most, || watch.look())
        });
        self.budget.take(owner, watch.taken());
        match answered {
            Ok(message) if message.kind == job as u32 => {
                self.processes.push((owner, process));
                Ok(message.body)
            }
            Ok(_) => {
                drop(process);
                Err(Unreadable::Nonsense)
            }
            Err(Broken::GivenUp(reason)) => {
                drop(process);
                Err(reason)
            }
            Err(Broken::Stream(error)) if error.kind() == io::ErrorKind::InvalidData => {
                drop(process);
                Err(Unreadable::Nonsense)
            }
            Err(Broken::Stream(_)) => Err(why(process, limit)),
        }
    }

    /// The process that reads the files of an owner.
    fn process_of(&mut self, owner: Owner) -> Result<Process, Unreadable> {
        if let Some(index) = self.processes.iter().position(|(whose, _)| *whose == owner) {
            return Ok(self.processes.remove(index).1);
        }
        if self.processes.len() >= MOST_PROCESSES {
            self.processes.remove(0);
        }
        Process::start(self.limits.memory).map_err(|error| Unreadable::NoReader(error.to_string()))
    }
}

/// Why a reader is gone that closed its stream.
fn why(process: Process, limit: Duration) -> Unreadable {
    let Some(status) = process.ended() else {
        return Unreadable::Failed;
    };
    match status.signal() {
        Some(libc::SIGPROF | libc::SIGXCPU) => Unreadable::Slow(limit),
        Some(libc::SIGBUS) => Unreadable::CutShort,
        Some(libc::SIGABRT | libc::SIGSEGV) => Unreadable::Failed,
        _ => Unreadable::Ended(process::told(status)),
    }
}

/// Looks whether a reader gets on.
struct Watch {
    pid: u32,
    limit: Duration,
    began: Duration,
    last: Duration,
    moved: Instant,
}

impl Watch {
    fn new(pid: u32, limit: Duration) -> Self {
        let began = sys::process_time(pid).unwrap_or_default();
        Self {
            pid,
            limit,
            began,
            last: began,
            moved: Instant::now(),
        }
    }

    /// Processor time of the question so far.
    fn taken(&self) -> Duration {
        let now = sys::process_time(self.pid).unwrap_or(self.last);
        now.saturating_sub(self.began)
    }

    fn look(&mut self) -> Result<(), Broken> {
        let now = sys::process_time(self.pid).unwrap_or(self.last);
        if now > self.last {
            self.last = now;
            self.moved = Instant::now();
        }
        // It ends by itself; that it may not is why somebody looks.
        if now.saturating_sub(self.began) > self.limit * 2 + channel::tick() {
            return Err(Broken::GivenUp(Unreadable::Slow(self.limit)));
        }
        if self.moved.elapsed() > PATIENCE {
            return Err(Broken::GivenUp(Unreadable::Stuck(PATIENCE)));
        }
        Ok(())
    }
}
