//! The raw stacks that were sent, and the completion of stacks by them.
//!
//! Part of the session. Connects the mappings that join knows with the tables of unwind.

use std::collections::HashMap;

use heaptrace_common::trampoline::is_trampoline;
use heaptrace_common::wire::{FileKey, StackHead};

use crate::events::raw_stack::RawStack;
use crate::join::{CodeInFile, Joiner};
use crate::unwind::{Code, FileTable, MappedFile, RawFrame, Tables, continue_walk};

/// Most bytes of raw stacks that wait for their stacks.
const MAX_BYTES: usize = 32 << 20;

/// A raw stack belongs to the stack of a process with a hash.
type Key = (u64, [u64; 2]);

/// The raw stacks whose stacks are not joined yet.
pub(super) struct RawStacks {
    /// Two threads may both send a new stack, each with its raw stack: how many stacks need it.
    kept: HashMap<Key, (RawStack, u32)>,
    bytes: usize,
    most_frames: usize,
    /// The file whose table was requested here for the stack that waits.
    requested: Option<FileKey>,
}

/// What became of a stack.
pub(super) enum Completed {
    /// Its walk went on.
    Stack(StackHead, Vec<u64>),
    /// Its walk can't go on.
    No,
    /// It needs a table that is not ready.
    Later,
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
    pub(super) fn add(&mut self, raw: RawStack, none_waits: bool) {
        if self.bytes >= MAX_BYTES && none_waits {
            self.kept.clear();
            self.bytes = 0;
        }
        if self.bytes >= MAX_BYTES {
            return;
        }
        let key = (raw.process, raw.hash);
        let bytes = size_of_raw(&raw);
        let kept = self.kept.entry(key).or_insert_with(|| {
            self.bytes += bytes;
            (raw, 0)
        });
        kept.1 += 1;
    }

    /// Forgets the raw stacks of a process that has ended.
    pub(super) fn forget(&mut self, process: u64) {
        let bytes = &mut self.bytes;
        self.kept.retain(|(of, _), (raw, _)| {
            let stays = *of != process;
            if !stays {
                *bytes = bytes.saturating_sub(size_of_raw(raw));
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
        tables: &Tables,
    ) -> Completed {
        let key = (head.process, head.hash);
        let Some((raw, _)) = self.kept.get(&key) else {
            return Completed::No;
        };
        let mut frames = frames.to_vec();
        let from = RawFrame {
            registers: raw.registers,
            is_return_address: raw.is_return_address,
            is_by_rule: raw.is_by_rule,
            bytes: raw.bytes,
            words: &raw.words,
        };
        let code = |address| code_at(joiner, tables, head, address);
        let walked = continue_walk(from, &mut frames, self.most_frames, code);
        match walked {
            Err(code) if self.can_wait(&code, joiner, tables) => Completed::Later,
            Err(_) => {
                self.release(&key);
                Completed::No
            }
            Ok(walk) => {
                self.release(&key);
                let head = StackHead {
                    walk,
                    depth: frames.len() as u32,
                    ..*head
                };
                Completed::Stack(head, frames)
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
            FileTable::Pending | FileTable::Rule(_) | FileTable::None => true,
        }
    }

    /// Drops the raw stack of a stack that is joined.
    pub(super) fn drop_of(&mut self, head: &StackHead) {
        self.release(&(head.process, head.hash));
    }

    fn release(&mut self, key: &Key) {
        self.requested = None;
        if let Some((raw, stacks)) = self.kept.get_mut(key) {
            *stacks -= 1;
            if *stacks == 0 {
                self.bytes = self.bytes.saturating_sub(size_of_raw(raw));
                self.kept.remove(key);
            }
        }
    }
}

/// What is known of the code at an address of a stack; the code, if the table of its file is not loaded.
fn code_at(
    joiner: &Joiner,
    tables: &Tables,
    head: &StackHead,
    address: u64,
) -> Result<Code, CodeInFile> {
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
        FileTable::Rule(rule) => Ok(Code::Rule(rule, code.end)),
        FileTable::None => Ok(Code::NoTable),
        FileTable::Pending | FileTable::Unknown => Err(code),
    }
}

fn size_of_raw(raw: &RawStack) -> usize {
    size_of::<(Key, RawStack, u32)>() + raw.words.len() * 8
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

    /// Check that a raw stack that two threads have sent is kept for both stacks, and that one of an ended process is dropped.
    #[test]
    fn raw_stacks_are_kept_for_their_stacks() {
        let mut raws = RawStacks::new(128);
        for (process, hash) in [(1, 7), (1, 7), (2, 7), (2, 8)] {
            raws.add(raw(process, hash, 9), false);
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
        let most = MAX_BYTES / size_of_raw(&raw(0, 0, 512));
        for hash in 0..2 * most as u64 {
            raws.add(raw(1, hash, 512), false);
        }
        assert_eq!(raws.kept.len(), most + 1);
        raws.add(raw(2, 1, 1), true);
        assert_eq!(raws.kept.len(), 1);
    }
}
