//! The tracer's side of a reader: sends questions, and handles readers that fail.
//!
//! No stage of the flow. If a reader fails, its current file is recorded as unreadable, and the next question starts a new
//! reader. A malicious file may have taken over the reader, so the caller must check each answer.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::budget::{Budget, FileOwner};
use super::channel::{self, MAX_FILES};
use super::message::{Job, decode, encode};
use super::process::{self, Process};
use super::unreadable::Unreadable;
use crate::sys;

/// The longest time on the clock without progress. A reader makes no progress if it was stopped, or if its disk does not
/// respond.
const MAX_STALL: Duration = Duration::from_secs(15);

/// Limits for one question.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processor time.
    pub time: Duration,
    /// Bytes of memory of a process.
    pub memory: u64,
    /// Most processes that one `Reader` keeps, each for the files of one owner.
    pub processes: usize,
}

impl Default for Limits {
    /// Enough for the largest known programs.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(10),
            memory: 1 << 30,
            processes: 4,
        }
    }
}

/// Why a question has no answer.
enum NoAnswer {
    /// The stream failed.
    Stream(io::Error),
    /// The tracer stopped waiting.
    Abandoned(Unreadable),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        Self::Stream(error)
    }
}

/// Reads files by processes without rights, one process for each owner of files. A malicious file that takes over its
/// process can then reach no files of other owners.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    budget: Budget,
    /// Whether files that can't be read are listed.
    records: bool,
    /// Ordered by last use, the most recent last.
    processes: Vec<(FileOwner, Process)>,
    #[cfg(test)]
    thread: Option<channel::Channel>,
}

impl Reader {
    /// A reader without a process; the first question starts one.
    pub fn new(budget: &Budget, limits: Limits) -> Self {
        Self {
            limits,
            budget: budget.clone(),
            records: true,
            processes: Vec::new(),
            #[cfg(test)]
            thread: None,
        }
    }

    /// A reader that lists no file as unreadable, for files that another one tries to read again.
    pub fn without_records(budget: &Budget, limits: Limits) -> Self {
        Self {
            records: false,
            ..Self::new(budget, limits)
        }
    }

    /// A reader that answers in a thread of this process, for tests of questions and answers.
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

    /// The budget that this reader uses.
    #[cfg(test)]
    pub(crate) fn budget(&self) -> Budget {
        self.budget.clone()
    }

    /// Asks about files. `name` is the name of the first file in the list of unreadable files.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        job: Job,
        question: &impl Serialize,
        name: &str,
        files: &[&File],
    ) -> Result<A, Unreadable> {
        let answer = self.try_ask(job, question, files);
        answer.inspect_err(|reason| self.record_unread(name, reason))
    }

    /// Asks about files, and lists none as unreadable.
    pub fn try_ask<A: DeserializeOwned>(
        &mut self,
        job: Job,
        question: &impl Serialize,
        files: &[&File],
    ) -> Result<A, Unreadable> {
        let bytes = self.try_ask_bytes(job, question, files)?;
        decode(&bytes).ok_or(Unreadable::Nonsense)
    }

    /// Asks about files, for an answer that has a byte format of its own.
    pub fn ask_bytes(
        &mut self,
        job: Job,
        question: &impl Serialize,
        name: &str,
        files: &[&File],
    ) -> Result<Vec<u8>, Unreadable> {
        let answer = self.try_ask_bytes(job, question, files);
        answer.inspect_err(|reason| self.record_unread(name, reason))
    }

    /// Adds a file to the list of those that could not be read.
    pub fn record_unread(&self, name: &str, reason: &Unreadable) {
        tracing::debug!("{name}: {reason}");
        if self.records {
            self.budget.record_unread(name, reason);
        }
    }

    fn try_ask_bytes(
        &mut self,
        job: Job,
        question: &impl Serialize,
        files: &[&File],
    ) -> Result<Vec<u8>, Unreadable> {
        let question = encode(question);
        let answer = self.answer(job, &question, files);
        match answer {
            // Another process ended the reader, so the file is not the cause: ask once more.
            Err(Unreadable::Ended(_)) => self.answer(job, &question, files),
            answer => answer,
        }
    }

    fn answer(
        &mut self,
        job: Job,
        question: &[u8],
        files: &[&File],
    ) -> Result<Vec<u8>, Unreadable> {
        let Some(owner) = files.first().map(|file| FileOwner::of(file)) else {
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
            let no_watch = || Ok::<(), NoAnswer>(());
            let sent = channel.send_watched(job as u32, &body, &files, no_watch);
            let answered = sent.and_then(|()| channel.receive_watched(job.most_bytes(), no_watch));
            return answered.map(|it| it.body).map_err(|_| Unreadable::Failed);
        }
        let mut process = self.process_of(owner)?;
        let mut watch = Watchdog::new(process.pid(), limit);
        let sent = process
            .channel
            .send_watched(job as u32, &body, &files, || watch.check());
        let answered = sent.and_then(|()| {
            let most = job.most_bytes();
            process.channel.receive_watched(most, || watch.check())
        });
        self.budget.spend(owner, watch.used());
        match answered {
            Ok(message) if message.kind == job as u32 => {
                self.processes.push((owner, process));
                Ok(message.body)
            }
            Ok(_) => {
                drop(process);
                Err(Unreadable::Nonsense)
            }
            Err(NoAnswer::Abandoned(reason)) => {
                drop(process);
                Err(reason)
            }
            Err(NoAnswer::Stream(error)) if error.kind() == io::ErrorKind::InvalidData => {
                drop(process);
                Err(Unreadable::Nonsense)
            }
            Err(NoAnswer::Stream(_)) => Err(reason_of_end(process, limit)),
        }
    }

    /// Takes the process for the files of an owner out of the list, or starts one.
    fn process_of(&mut self, owner: FileOwner) -> Result<Process, Unreadable> {
        if let Some(index) = self.processes.iter().position(|(other, _)| *other == owner) {
            return Ok(self.processes.remove(index).1);
        }
        if self.processes.len() >= self.limits.processes.max(1) {
            self.processes.remove(0);
        }
        Process::start(self.limits.memory).map_err(|error| Unreadable::NoReader(error.to_string()))
    }
}

/// Why a reader that closed its stream has ended.
fn reason_of_end(process: Process, limit: Duration) -> Unreadable {
    let Some(status) = process.ended() else {
        return Unreadable::Failed;
    };
    match status.signal() {
        Some(libc::SIGPROF | libc::SIGXCPU) => Unreadable::Slow(limit),
        Some(libc::SIGBUS) => Unreadable::CutShort,
        Some(libc::SIGABRT | libc::SIGSEGV) => Unreadable::Failed,
        _ => Unreadable::Ended(process::describe(status)),
    }
}

/// Checks that a reader makes progress and keeps to its limit of processor time.
struct Watchdog {
    pid: u32,
    limit: Duration,
    /// The reader's processor time at the start of the question.
    began: Duration,
    /// Its processor time at the last check.
    last: Duration,
    /// When that time last increased.
    last_progress: Instant,
}

impl Watchdog {
    fn new(pid: u32, limit: Duration) -> Self {
        let began = sys::process_time(pid).unwrap_or_default();
        Self {
            pid,
            limit,
            began,
            last: began,
            last_progress: Instant::now(),
        }
    }

    /// Processor time that the reader has used for the question.
    fn used(&self) -> Duration {
        let now = sys::process_time(self.pid).unwrap_or(self.last);
        now.saturating_sub(self.began)
    }

    fn check(&mut self) -> Result<(), NoAnswer> {
        let now = sys::process_time(self.pid).unwrap_or(self.last);
        if now > self.last {
            self.last = now;
            self.last_progress = Instant::now();
        }
        // A sound reader ends by itself at the limit. This check is for a reader that was taken over.
        if now.saturating_sub(self.began) > self.limit * 2 + channel::tick() {
            return Err(NoAnswer::Abandoned(Unreadable::Slow(self.limit)));
        }
        if self.last_progress.elapsed() > MAX_STALL {
            return Err(NoAnswer::Abandoned(Unreadable::Stuck(MAX_STALL)));
        }
        Ok(())
    }
}
