//! The raw stacks that were sent, and the completion of stacks by them.
//!
//! Part of the session. Connects the mappings that join knows with the tables of unwind, and with virtual machines.

use std::collections::HashMap;
use std::sync::Arc;

use heaptrace_common::limits::MAX_FRAMES;
use heaptrace_common::trampoline::is_trampoline;
use heaptrace_common::unwind::{Memory, Registers, outcome};
use heaptrace_common::wire::{FileKey, JavaFrame, StackHead, V8Frame};

use super::sources::Sources;
use crate::events::java::JavaFrames;
use crate::events::raw_stack::RawStack;
use crate::events::v8::V8Frames;
use crate::join::{CodeInFile, Joiner};
use crate::session::java::{Described, ReadWords};
use crate::session::v8::PossibleFrames;
use crate::unwind::{Code, FileTable, MappedFile, Process, RawFrame, Tables, continue_walk};

/// Most bytes of raw stacks that wait for their stacks.
const MAX_BYTES: usize = 32 << 20;

/// A raw stack belongs to the stack of a process with a hash.
type Key = (u64, [u64; 2]);

/// The raw stacks whose stacks are not joined yet.
pub(super) struct RawStacks {
    kept: HashMap<Key, Kept>,
    bytes: usize,
    most_frames: usize,
    /// The file whose table was requested here for the stack that waits.
    requested: Option<FileKey>,
}

/// A raw stack that waits for its stack.
struct Kept {
    raw: RawStack,
    ahead: ReadAhead,
    /// Two threads may both send a new stack, each with its raw stack: how many stacks need it.
    stacks: u32,
}

impl Kept {
    fn bytes(&self) -> usize {
        let ahead = self.ahead.java.bytes_apart() + self.ahead.javascript.bytes_apart();
        size_of::<(Key, Self)>() + self.raw.words.len() * 8 + ahead
    }
}

/// What the frames of languages needed of the memory of a process when a raw stack arrived.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    pub(super) java: ReadWords,
    pub(super) javascript: PossibleFrames,
}

/// What became of a stack.
pub(super) enum Completed {
    /// Its walk went on, and met frames of a language.
    Stack(StackHead, Vec<u64>, Met),
    /// Its walk can't go on.
    No,
    /// It needs a table that is not ready.
    Later,
}

/// Frames of a language, which have no names yet.
pub(super) enum Met {
    No,
    Java(JavaFrames),
    JavaScript(V8Frames),
}

impl Met {
    fn id(&self) -> Option<u64> {
        match self {
            Self::No => None,
            Self::Java(java) => Some(java.id),
            Self::JavaScript(javascript) => Some(javascript.id),
        }
    }
}

impl RawStacks {
    pub(super) fn new(most_frames: usize) -> Self {
        Self {
            kept: HashMap::new(),
            bytes: 0,
            most_frames,
            requested: None,
        }
    }

    /// Keeps a raw stack until its stack is joined. If no stack waits, those that were kept before have lost their stacks, but for the
    /// last ones.
    ///
    /// `read_ahead` reads what the frames of languages need of the memory of the process.
    pub(super) fn add(
        &mut self,
        raw: RawStack,
        none_waits: bool,
        read_ahead: impl FnOnce(&RawStack) -> ReadAhead,
    ) {
        if self.bytes >= MAX_BYTES && none_waits {
            self.kept.clear();
            self.bytes = 0;
        }
        if self.bytes >= MAX_BYTES {
            return;
        }
        let key = (raw.process, raw.hash);
        let kept = self.kept.entry(key).or_insert_with(|| {
            let ahead = read_ahead(&raw);
            let kept = Kept {
                raw,
                ahead,
                stacks: 0,
            };
            self.bytes += kept.bytes();
            kept
        });
        kept.stacks += 1;
    }

    /// Forgets the raw stacks of a process that has ended.
    pub(super) fn forget(&mut self, process: u64) {
        let bytes = &mut self.bytes;
        self.kept.retain(|(of, _), kept| {
            let stays = *of != process;
            if !stays {
                *bytes = bytes.saturating_sub(kept.bytes());
            }
            stays
        });
    }

    /// Completes a stack by its raw stack, which is needed no more then.
    pub(super) fn complete(
        &mut self,
        head: &StackHead,
        frames: &[u64],
        joiner: &Joiner,
        sources: &Sources<'_>,
    ) -> Completed {
        let key = (head.process, head.hash);
        let Some(kept) = self.kept.get(&key) else {
            return Completed::No;
        };
        let mut frames = frames.to_vec();
        let mut process = OfStack::new(head, joiner, sources, &kept.ahead);
        let from = frame_of(&kept.raw);
        let walked = continue_walk(from, &mut frames, self.most_frames, &mut process);
        let language_frames = process.language_frames;
        let met = process.met(&frames);
        match walked {
            Err(code) if self.can_wait(&code, joiner, sources.tables) => Completed::Later,
            Err(_) => {
                self.release(&key);
                Completed::No
            }
            Ok(walk) => {
                self.release(&key);
                let mut head = StackHead {
                    walk,
                    depth: frames.len() as u32,
                    language_frames,
                    ..*head
                };
                if let Some(id) = met.id() {
                    head.language = id;
                }
                Completed::Stack(head, frames, met)
            }
        }
    }

    /// Whether the table of a file will be ready. Requests it, if it is not requested.
    fn can_wait(&mut self, code: &CodeInFile, joiner: &Joiner, tables: &Tables) -> bool {
        let Some(key) = code.file else {
            return false;
        };
        match tables.rule(key, code.at) {
            FileTable::Unknown if self.requested == Some(key) => false,
            FileTable::Unknown => {
                self.requested = Some(key);
                let open = joiner.module_file(code.module);
                let file = open.and_then(|(file, path)| MappedFile::of_open(&file, key, path));
                let is_open = file.is_some();
                file.into_iter().for_each(|file| tables.load(file));
                is_open
            }
            // It may have become ready just now.
            FileTable::Pending | FileTable::Rule(..) | FileTable::None => true,
        }
    }

    /// Drops the raw stack of a stack that is joined.
    pub(super) fn drop_of(&mut self, head: &StackHead) {
        self.release(&(head.process, head.hash));
    }

    fn release(&mut self, key: &Key) {
        self.requested = None;
        if let Some(kept) = self.kept.get_mut(key) {
            kept.stacks -= 1;
            if kept.stacks == 0 {
                self.bytes = self.bytes.saturating_sub(kept.bytes());
                self.kept.remove(key);
            }
        }
    }
}

/// The process of a stack, and what was found of its languages.
struct OfStack<'a> {
    head: &'a StackHead,
    joiner: &'a Joiner,
    tables: &'a Tables,
    machine: Option<Arc<Described>>,
    ahead: &'a ReadAhead,
    /// As in the stack's head.
    language_frames: [u64; MAX_FRAMES / 64],
    /// Whether the stack has no frames of another language.
    takes_java: bool,
    java: Vec<JavaFrame>,
    /// Each with its number in the stack.
    javascript: Vec<(usize, V8Frame)>,
}

impl<'a> OfStack<'a> {
    fn new(
        head: &'a StackHead,
        joiner: &'a Joiner,
        sources: &'a Sources<'_>,
        ahead: &'a ReadAhead,
    ) -> Self {
        let mut language_frames = head.language_frames;
        // The kernel program leaves those of earlier walks beyond the frame at which the walk ended. That one is looked at again here.
        for frame in (head.depth as usize).saturating_sub(1)..MAX_FRAMES {
            if let Some(word) = language_frames.get_mut(frame / 64) {
                *word &= !(1 << (frame % 64));
            }
        }
        Self {
            head,
            joiner,
            tables: sources.tables,
            machine: sources.java.machine(head.process),
            ahead,
            language_frames,
            takes_java: head.language == 0 || joiner.has_java(head.process, head.language),
            java: Vec::new(),
            javascript: Vec::new(),
        }
    }

    /// The frames of a language that the walk has met.
    fn met(self, frames: &[u64]) -> Met {
        // The id of language frames is a hash of them, as that of the stack is, of which they are a part.
        let (process, id) = (self.head.process, self.head.hash[0].max(1));
        if !self.java.is_empty() {
            return Met::Java(JavaFrames {
                process,
                id,
                frames: self.java,
            });
        }
        if self.javascript.is_empty() {
            return Met::No;
        }
        let place = |(frame, mut found): (usize, V8Frame)| {
            if found.code & V8Frame::IS_COMPILED != 0 {
                found.place = frames.get(frame).copied().unwrap_or(0);
            }
            found
        };
        let found = self.javascript.into_iter().map(place).collect();
        Met::JavaScript(self.ahead.javascript.event(process, id, found))
    }

    fn mark(&mut self, frame: usize) {
        if let Some(word) = self.language_frames.get_mut(frame / 64) {
            *word |= 1 << (frame % 64);
        }
    }
}

impl Process for OfStack<'_> {
    /// Code of a file whose table is not loaded.
    type Error = CodeInFile;

    fn code(&self, address: u64) -> Result<Code, CodeInFile> {
        let Self {
            head,
            joiner,
            tables,
            ..
        } = self;
        let Some(code) = joiner.code_at(head.process, head.time, address) else {
            return Ok(if is_trampoline(address) {
                Code::Trampoline
            } else if joiner.is_generated(head.process, head.time, address) {
                Code::NoTable
            } else {
                Code::Unmapped
            });
        };
        let Some(file) = code.file else {
            return Err(code);
        };
        match tables.rule(file, code.at) {
            FileTable::Rule(rule, is_loop) => Ok(Code::Rule {
                rule,
                end: code.end,
                is_loop,
            }),
            FileTable::None => Ok(Code::NoTable),
            FileTable::Pending | FileTable::Unknown => Err(code),
        }
    }

    fn note_loop(&mut self, frame: usize) {
        self.takes_java = false;
        self.mark(frame);
    }

    fn note_without_rule(&mut self, frame: usize, bp: u64) {
        // Frames that the kernel program has found are further in.
        if self.head.language == 0
            && let Some(found) = self.ahead.javascript.at(bp)
        {
            self.javascript.push((frame, found));
            self.mark(frame);
        }
    }

    fn step_generated(
        &mut self,
        frame: usize,
        pc: u64,
        registers: &mut Registers,
        stack: &mut impl Memory,
    ) -> u32 {
        let machine = self.machine.as_ref().filter(|it| it.has_generated(pc));
        let Some(machine) = machine else {
            return outcome::NO_RULE;
        };
        let (outcome, found) = machine.step(pc, registers, stack, &self.ahead.java);
        if outcome != outcome::NO_RULE && self.takes_java {
            self.java.push(found);
            self.mark(frame);
        }
        outcome
    }
}

/// The frame from which a walk is continued.
pub(super) fn frame_of(raw: &RawStack) -> RawFrame<'_> {
    RawFrame {
        registers: raw.registers,
        is_return_address: raw.is_return_address,
        is_by_rule: raw.is_by_rule,
        bytes: raw.bytes,
        words: &raw.words,
    }
}

#[cfg(test)]
mod tests {
    use heaptrace_common::unwind::Registers;

    use super::*;

    fn raw(process: u64, hash: u64, words: usize) -> RawStack {
        RawStack {
            process,
            hash: [hash, 0],
            registers: Registers::default(),
            is_return_address: true,
            is_by_rule: true,
            bytes: 0,
            words: vec![0; words],
        }
    }

    fn size_of_kept(raw: RawStack) -> usize {
        let kept = Kept {
            raw,
            ahead: ReadAhead::default(),
            stacks: 1,
        };
        kept.bytes()
    }

    /// Check that a raw stack that two threads have sent is kept for both stacks, and that one of an ended process is dropped.
    #[test]
    fn raw_stacks_are_kept_for_their_stacks() {
        let mut raws = RawStacks::new(128);
        for (process, hash) in [(1, 7), (1, 7), (2, 7), (2, 8)] {
            raws.add(raw(process, hash, 9), false, |_| ReadAhead::default());
        }
        assert_eq!(raws.kept.len(), 3);
        raws.release(&(1, [7, 0]));
        assert_eq!(raws.kept.len(), 3);
        raws.release(&(1, [7, 0]));
        raws.release(&(1, [7, 0]));
        assert_eq!(raws.kept.len(), 2);
        raws.forget(2);
        assert_eq!((raws.kept.len(), raws.bytes), (0, 0));
    }

    /// Check that raw stacks are bounded, and that those without a stack make room when no stack waits.
    #[test]
    fn raw_stacks_are_bounded() {
        let mut raws = RawStacks::new(128);
        let most = MAX_BYTES / size_of_kept(raw(0, 0, 512));
        for hash in 0..2 * most as u64 {
            raws.add(raw(1, hash, 512), false, |_| ReadAhead::default());
        }
        assert_eq!(raws.kept.len(), most + 1);
        raws.add(raw(2, 1, 1), true, |_| ReadAhead::default());
        assert_eq!(raws.kept.len(), 1);
    }
}
