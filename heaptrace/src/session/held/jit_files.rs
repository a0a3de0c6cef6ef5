//! Names of generated code: asks for what is new in the files of a process before its stacks are joined.
//!
//! Part of the session. The files are opened and read on a thread of their own: a file system can hang, and a reader takes a
//! while. A stack waits for it a moment, then its event is held. Must not know what the files contain.

mod files;
mod look;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use heaptrace_common::wire::StackHead;

use crate::join::{GeneratedCode, Joiner};
use crate::reader::{Budget, Unreadable};
use look::{Answer, Look, Looker, Request};

/// Most processes whose files are looked at.
const MAX_PROCESSES: usize = 512;

/// Pieces of files that wait to be joined.
const ANSWERS: usize = 4;

/// The time that an answer is waited for at once.
const MOMENT: Duration = Duration::from_millis(2);

/// A process whose answer takes longer than this is not waited for any more.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The time between two looks at the files of a process.
const PERIOD: Duration = Duration::from_millis(100);

/// The same for a process without files.
const PERIOD_WITHOUT: Duration = Duration::from_secs(1);

/// The processes with generated code.
pub(super) struct JitFiles {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    processes: HashMap<u64, Process>,
    /// When the last events were read.
    read: Instant,
    /// For a stack that is held: when it was read at the latest.
    held: Option<Instant>,
    budget: Budget,
    refused: u64,
}

struct Process {
    code: GeneratedCode,
    /// When it was asked for, if there is no answer yet.
    asked: Option<Instant>,
    /// When the last look began that has been answered.
    looked: Option<Instant>,
    has_files: bool,
}

impl JitFiles {
    /// Starts the thread.
    pub(super) fn new(budget: &Budget) -> Result<Self> {
        let (requests, asked) = channel();
        let (answer, answers) = sync_channel(ANSWERS);
        let looker = Looker::new(budget, answer);
        // The thread is not joined: opening or reading a file may never return.
        std::thread::Builder::new()
            .name("heaptrace-jit".to_owned())
            .spawn(move || looker.work(&asked))
            .context("can't start a thread")?;
        Ok(Self {
            requests,
            answers,
            processes: HashMap::new(),
            read: Instant::now(),
            held: None,
            budget: budget.clone(),
            refused: 0,
        })
    }

    /// Records that all events that come next were read by now.
    pub(super) fn set_read(&mut self) {
        self.read = Instant::now();
    }

    /// Files that were not read.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether the names of a stack's generated code are as new as the stack, or there is none. Asks for them if they are not.
    pub(super) fn is_ready(
        &mut self,
        head: &StackHead,
        frames: &[u64],
        joiner: &mut Joiner,
    ) -> bool {
        let Some(code) = joiner.generated_code(head, frames) else {
            self.held = None;
            return true;
        };
        if !self.processes.contains_key(&head.process) {
            if self.processes.len() >= MAX_PROCESSES {
                return true;
            }
            self.processes.insert(head.process, Process::new(code));
        }
        self.is_current(head.process, PERIOD, joiner)
    }

    /// Whether the files of a process that has ended were read to their end. It is forgotten then.
    pub(super) fn is_read(&mut self, process: u64, joiner: &mut Joiner) -> bool {
        if self.processes.contains_key(&process)
            && !self.is_current(process, Duration::ZERO, joiner)
        {
            return false;
        }
        if self.processes.remove(&process).is_some() {
            let _ = self.requests.send(Request::Forget(process));
        }
        true
    }

    /// Does not wait any more for the event that is held.
    pub(super) fn stop_waiting(&mut self) {
        self.held = None;
    }

    /// Whether the last look at the files of a process began after the events were read. For a process without files, it may
    /// have begun some time before.
    fn is_current(&mut self, process: u64, before: Duration, joiner: &mut Joiner) -> bool {
        let since = self.held.unwrap_or(self.read);
        // Answers can have come while the ring was not read.
        self.join_answers(joiner);
        // The first look can have begun before the stack was read.
        for _ in 0..2 {
            if self.is_enough(process, since, before) {
                self.held = None;
                return true;
            }
            self.ask(process, joiner);
            if !self.take_answer_of(process, joiner) {
                break;
            }
        }
        let is_enough = self.is_enough(process, since, before);
        self.held = (!is_enough).then_some(since);
        is_enough
    }

    fn is_enough(&self, process: u64, since: Instant, before: Duration) -> bool {
        let Some(known) = self.processes.get(&process) else {
            return true;
        };
        let is_stuck = known.asked.is_some_and(|it| it.elapsed() > MAX_WAIT);
        is_stuck
            || known.looked.is_some_and(|looked| {
                looked >= since || !known.has_files && looked.elapsed() < before
            })
    }

    fn ask(&mut self, process: u64, joiner: &mut Joiner) {
        let Some(known) = self.processes.get_mut(&process) else {
            return;
        };
        if known.asked.is_none() {
            known.asked = Some(Instant::now());
            let look = Look {
                process,
                code: known.code,
                dumps: joiner.take_jitdumps(known.code.pid),
            };
            let _ = self.requests.send(Request::Look(look));
        }
    }

    /// Joins answers until that of a process is complete. False if it takes longer than a moment.
    fn take_answer_of(&mut self, process: u64, joiner: &mut Joiner) -> bool {
        let begin = Instant::now();
        loop {
            let is_asked = self.processes.get(&process).map(|it| it.asked.is_some());
            if is_asked != Some(true) {
                return true;
            }
            let left = MOMENT.saturating_sub(begin.elapsed());
            match self.answers.recv_timeout(left) {
                Ok(answer) => self.join(answer, joiner),
                Err(_) => return false,
            }
        }
    }

    /// Joins the answers that are there, and looks at files again from time to time.
    pub(super) fn take_answers(&mut self, joiner: &mut Joiner) {
        self.join_answers(joiner);
        let is_due = |it: &Process| {
            let period = if it.has_files { PERIOD } else { PERIOD_WITHOUT };
            it.looked.is_none_or(|looked| looked.elapsed() >= period)
        };
        let due = self.processes.iter().filter(|(_, it)| is_due(it));
        let due: Vec<u64> = due.map(|(process, _)| *process).collect();
        for process in due {
            self.ask(process, joiner);
        }
    }

    /// Reads the files of all processes to their end.
    pub(super) fn read_all(&mut self, joiner: &mut Joiner) {
        let begin = Instant::now();
        self.set_read();
        self.held = None;
        let all: Vec<u64> = self.processes.keys().copied().collect();
        for process in all {
            while !self.is_current(process, Duration::ZERO, joiner) && begin.elapsed() < MAX_WAIT {}
            self.held = None;
        }
    }

    fn join_answers(&mut self, joiner: &mut Joiner) {
        while let Ok(answer) = self.answers.try_recv() {
            self.join(answer, joiner);
        }
    }

    fn join(&mut self, answer: Answer, joiner: &mut Joiner) {
        match answer {
            Answer::Piece {
                process,
                piece,
                now,
            } => {
                joiner.count_broken_names(piece.broken);
                if self.processes.contains_key(&process) {
                    for change in piece.changes {
                        joiner.change_generated_code(process, change, now);
                    }
                }
            }
            Answer::Refused { name, reason } => {
                self.refused += 1;
                let reason = Unreadable::NotOpened(reason);
                self.budget.record_unread(&name, &reason);
            }
            Answer::Done {
                process,
                began,
                has_files,
            } => {
                if let Some(known) = self.processes.get_mut(&process) {
                    known.asked = None;
                    known.looked = Some(began);
                    known.has_files = has_files;
                    joiner.name_late(process);
                }
            }
        }
    }
}

impl Process {
    fn new(code: GeneratedCode) -> Self {
        Self {
            code,
            asked: None,
            looked: None,
            has_files: false,
        }
    }
}
