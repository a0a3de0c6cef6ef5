//! The thread that looks at files with names of generated code.
//!
//! Part of the session. Knows which process has which files; `files.rs` opens and reads them.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use super::files::Files;
use crate::jit::Piece;
use crate::join::GeneratedCode;
use crate::reader::{Budget, Limits, Reader};
use crate::sys;

/// What the thread is asked.
pub(super) enum Request {
    Look(Look),
    /// A process has ended.
    Forget(u64),
}

/// A look at the files of a process.
pub(super) struct Look {
    /// Its serial number.
    pub(super) process: u64,
    pub(super) code: GeneratedCode,
    /// The jitdump files that it has announced since the last look.
    pub(super) dumps: Vec<Arc<File>>,
}

/// What the thread answers: any number of pieces and refused files, then the end of the look.
pub(super) enum Answer {
    /// A piece of a file.
    Piece {
        process: u64,
        piece: Piece,
        /// When it had been read, on the clock of events.
        now: u64,
    },
    /// A file that was not read, once.
    Refused { name: String, reason: String },
    /// The files were read to their end.
    Done {
        process: u64,
        /// When the look began.
        began: Instant,
        /// Whether the process has files that can be read.
        has_files: bool,
    },
}

/// The state of the thread.
pub(super) struct Looker {
    reader: Reader,
    answers: SyncSender<Answer>,
    processes: HashMap<u64, Files>,
}

impl Looker {
    pub(super) fn new(budget: &Budget, answers: SyncSender<Answer>) -> Self {
        Self {
            reader: Reader::new(budget, Limits::default()),
            answers,
            processes: HashMap::new(),
        }
    }

    /// Answers requests until there are no more.
    pub(super) fn work(mut self, requests: &Receiver<Request>) {
        while let Ok(request) = requests.recv() {
            match request {
                Request::Forget(process) => {
                    self.processes.remove(&process);
                }
                Request::Look(look) => {
                    if !self.look(look) {
                        return;
                    }
                }
            }
        }
    }

    /// Looks at the files of a process. False if the answers are not needed any more.
    fn look(&mut self, look: Look) -> bool {
        let Look {
            process,
            code,
            dumps,
        } = look;
        let began = Instant::now();
        let files = self
            .processes
            .entry(process)
            .or_insert_with(|| Files::of(code));
        files.add(dumps);
        let answers = &self.answers;
        let mut is_open = true;
        let mut refuse = |name: &str, reason: String| {
            let name = format!("{name} of process {}", code.pid);
            is_open &= answers.send(Answer::Refused { name, reason }).is_ok();
        };
        files.open(&mut refuse);
        let mut is_read = true;
        let mut send = |piece| {
            let answer = Answer::Piece {
                process,
                piece,
                now: sys::monotonic_now(),
            };
            is_read &= answers.send(answer).is_ok();
            is_read
        };
        files.read(&mut self.reader, &mut send, &mut refuse);
        let done = Answer::Done {
            process,
            began,
            has_files: files.are_open(),
        };
        is_open && is_read && self.answers.send(done).is_ok()
    }
}
