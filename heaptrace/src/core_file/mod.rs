//! Core files: what a process had in its registers and its memory when it was written.
//!
//! Below the stages. A core file is the work of a target, so commands read it after they have given up all rights, and every part
//! has a limit. Knows nothing of blocks.

mod notes;
mod registers;
#[cfg(test)]
mod tests;

use object::elf::{EM_X86_64, ET_CORE, FileHeader64, PF_W, PF_X, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, ReadRef};
use thiserror::Error;

use notes::Notes;

pub use notes::{Fault, Thread};
pub use registers::{Registers, register_names};

/// Most parts of a file: more mappings than Linux lets a process have by default.
const MOST_PARTS: u32 = 1 << 18;

/// Most bytes of notes: registers of thousands of threads, and the names of all files.
const MOST_NOTES: u64 = 64 << 20;

/// Why a file is not used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NoCore {
    /// It is no core file, or not one of this kind of machine.
    #[error(
        "it is no core file of a 64-bit x86 program: name the file that the kernel or `gcore` wrote"
    )]
    Other,
    /// It has too many parts, or a part that is not in the file.
    #[error("it is damaged or cut off: {0}")]
    Damaged(&'static str),
    /// It says nothing of its process.
    #[error("it has no registers of any thread, so it is no core file of a process")]
    NoThread,
}

/// A part of the memory of the process.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: u64,
    /// Its bytes in the file.
    in_file: u64,
    /// Its bytes in the process.
    in_memory: u64,
    offset: u64,
    flags: u32,
}

/// A core file.
#[derive(Debug)]
pub struct CoreFile<R> {
    data: R,
    parts: Vec<Part>,
    notes: Notes,
}

impl<'a, R: ReadRef<'a>> CoreFile<R> {
    /// Reads everything but the memory.
    pub fn read(data: R) -> Result<Self, NoCore> {
        let header = FileHeader64::<Endianness>::parse(data).map_err(|_| NoCore::Other)?;
        let endian = header.endian().map_err(|_| NoCore::Other)?;
        let is_core = header.e_type(endian) == ET_CORE && header.e_machine(endian) == EM_X86_64;
        if !is_core || endian != Endianness::Little {
            return Err(NoCore::Other);
        }
        let damaged = |_| NoCore::Damaged("its list of parts");
        if header.phnum(endian, data).map_err(damaged)? > MOST_PARTS {
            return Err(NoCore::Damaged("too many parts"));
        }
        let mut parts = Vec::new();
        let mut notes = Notes::default();
        let mut left = MOST_NOTES;
        for part in header.program_headers(endian, data).map_err(damaged)? {
            match part.p_type(endian) {
                PT_LOAD => parts.push(Part {
                    start: part.p_vaddr(endian),
                    in_file: part.p_filesz(endian),
                    in_memory: part.p_memsz(endian),
                    offset: part.p_offset(endian),
                    flags: part.p_flags(endian).0,
                }),
                PT_NOTE => {
                    let too_long = NoCore::Damaged("too many notes");
                    left = left.checked_sub(part.p_filesz(endian)).ok_or(too_long)?;
                    let damaged = |_| NoCore::Damaged("its notes");
                    let mut found = part.notes(endian, data).map_err(damaged)?;
                    while let Some(note) = found.as_mut().and_then(|it| it.next().ok().flatten()) {
                        notes.add(note.n_type(endian), note.desc());
                    }
                }
                _ => {}
            }
        }
        parts.sort_by_key(|part| part.start);
        if notes.threads.is_empty() {
            return Err(NoCore::NoThread);
        }
        Ok(Self { data, parts, notes })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        // Without the note of the process, the first thread is the best guess.
        let first = self.notes.threads.first().map_or(0, |it| it.tid);
        self.notes.pid.unwrap_or(first)
    }

    /// Its name; raw, to be escaped by every output.
    pub fn command(&self) -> &str {
        &self.notes.command
    }

    /// The thread that got the signal, or that was current when the file was written.
    pub fn thread(&self) -> Option<&Thread> {
        self.notes.threads.first()
    }

    /// The signal, and the address that it is about.
    pub fn fault(&self) -> Option<Fault> {
        self.notes.fault
    }

    /// Bytes of its memory, as many as the file has from an address on, at most so many.
    pub fn memory(&self, address: u64, most: u64) -> &'a [u8] {
        let bytes = self.part(address).and_then(|part| {
            let skipped = address - part.start;
            let length = part.in_file.checked_sub(skipped)?.min(most);
            let at = part.offset.checked_add(skipped)?;
            self.data.read_bytes_at(at, length).ok()
        });
        bytes.unwrap_or_default()
    }

    /// What a process has at an address, in words: a file with its path (raw), or the kind of memory. `None` if nothing is mapped there.
    pub fn mapping(&self, address: u64) -> Option<String> {
        let part = self.part(address);
        if let Some(path) = self.notes.file_at(address) {
            return Some(path.to_owned());
        }
        let stack = self.thread().map_or(0, |it| it.registers.stack_pointer());
        let part = part?;
        Some(if part.contains(stack) {
            "the stack of the thread".to_owned()
        } else if part.flags & PF_X.0 != 0 {
            "memory without a file that can be executed".to_owned()
        } else if part.flags & PF_W.0 != 0 {
            "memory without a file".to_owned()
        } else {
            "memory without a file that can't be written".to_owned()
        })
    }

    /// The path of the file that is mapped at an address (raw), and the offset in it.
    pub fn in_file(&self, address: u64) -> Option<(&str, u64)> {
        self.notes.in_file(address)
    }

    fn part(&self, address: u64) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.start <= address);
        let part = self.parts.get(after.checked_sub(1)?)?;
        part.contains(address).then_some(part)
    }
}

impl Part {
    fn contains(&self, address: u64) -> bool {
        let inside = address.checked_sub(self.start);
        inside.is_some_and(|inside| inside < self.in_memory.max(self.in_file))
    }
}

/// Checks for fuzzers that any file can be read, and any address of it.
#[cfg(feature = "fuzz")]
pub(crate) fn fuzz(data: &[u8]) -> u64 {
    let core = match CoreFile::read(data) {
        Ok(core) => core,
        Err(NoCore::Other) => return 0,
        Err(NoCore::Damaged(_)) => return 1,
        Err(NoCore::NoThread) => return 2,
    };
    let mut seen = 3 + core.notes.threads.len().min(3) as u64 + u64::from(core.fault().is_some());
    let registers = core.thread().map(|it| it.registers.clone());
    let named = register_names().filter_map(|name| registers.as_ref()?.named(name));
    let starts = core.parts.iter().map(|part| part.start);
    for address in [0, u64::MAX]
        .into_iter()
        .chain(named)
        .chain(starts.take(64))
    {
        let bytes = core.memory(address, 64);
        assert!(bytes.len() <= 64);
        let is_mapped = core.mapping(address).is_some();
        assert!(is_mapped || core.in_file(address).is_none());
        assert!(is_mapped || bytes.is_empty());
        seen = seen * 3 % 1021 + u64::from(is_mapped) + u64::from(!bytes.is_empty());
    }
    seen.max(1)
}
