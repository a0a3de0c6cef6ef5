//! What an earlier run left in a process: its mapping, and slots and stubs that still lead there if that run was killed as a whole.
//!
//! Stage: probes. Reads the process's memory, and writes nothing. Must not know who maps, nor who writes slots.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::code::{self, CODE_BYTES, DATA_BYTES, Function, HINT_BYTES, MARK_BYTES};
use super::messages::{Sizes, Slot};
use super::patch::{BYTES, Patch};
use crate::proc::contents;
use crate::proc::maps::{self, Mapping};
use crate::proc::processes;

/// The name of the file of code and data, as `/proc/PID/maps` shows it.
pub(super) const FILE: &str = "/memfd:heaptrace-fast (deleted)";

/// The same for the hints.
const HINTS: &str = "anon_inode:bpf-map";

/// Bytes that are read at a time.
const AT_A_TIME: u64 = 1 << 20;

/// The lengths of the parts that this version maps.
pub const SIZES: Sizes = Sizes {
    code: CODE_BYTES as u64,
    data: DATA_BYTES as u64,
    hints: HINT_BYTES as u64,
    mark: MARK_BYTES as u64,
};

/// The inode of the file of code and data, if exactly the three parts of a mapping are at an address. `hints` is the path of
/// the third part.
pub(super) fn inode_at(mappings: &[Mapping], base: u64, sizes: Sizes, hints: &str) -> Option<u64> {
    let Sizes { code, data, .. } = sizes;
    let part = |start: u64, length: u64, permissions: &[u8; 4], path: &str, offset: u64| {
        mappings.iter().find(|it| {
            (it.start, it.end - it.start, it.offset) == (start, length, offset)
                && it.permissions == *permissions
                && it.path == path
        })
    };
    let first = part(base, code, b"r-xp", FILE, 0)?;
    let second = part(base + code, data, b"rw-p", FILE, code)?;
    part(base + code + data, sizes.hints, b"r--s", hints, 0)?;
    let is_same = (first.device, first.inode) == (second.device, second.inode);
    is_same.then_some(first.inode)
}

/// Whether a process has a mapping with code at an address. One that has started another program has none.
pub fn has_code(pid: u32, base: u64) -> bool {
    let mappings = maps::of(pid).unwrap_or_default();
    inode_at(&mappings, base, SIZES, HINTS).is_some()
}

/// A mapping of an earlier run that has ended.
#[derive(Debug)]
pub struct Earlier {
    /// Its first address.
    pub base: u64,
    /// Its code.
    code: Vec<u8>,
    /// The changed stubs that it has recorded.
    records: Vec<Patch>,
    memory: File,
    mappings: Vec<Mapping>,
}

/// The mappings of earlier runs in a process. Those of runs that have not ended are left out.
pub fn find(pid: u32) -> Vec<Earlier> {
    let text = maps::read(maps::living_thread(pid)).unwrap_or_default();
    if !text.contains(FILE) {
        return Vec::new();
    }
    let mappings: Vec<Mapping> = maps::parse(&text).collect();
    mappings
        .iter()
        .filter(|it| inode_at(&mappings, it.start, SIZES, HINTS).is_some())
        .filter_map(|it| {
            let memory = contents::open(pid).ok()?;
            let mut all = vec![0; CODE_BYTES + DATA_BYTES];
            memory.read_exact_at(&mut all, it.start).ok()?;
            if code::owner(&all).is_some_and(|(pid, time)| processes::is_running(pid, time)) {
                return None;
            }
            let records = code::records(&all);
            all.truncate(CODE_BYTES);
            Some(Earlier {
                base: it.start,
                code: all,
                records,
                memory,
                mappings: mappings.clone(),
            })
        })
        .collect()
}

impl Earlier {
    /// Whether the code is what this run would write there for these functions, except for its cookie.
    pub fn is_for(&self, functions: &[Function]) -> bool {
        code::is_code(&self.code, self.base, functions)
    }

    /// The changes of stubs that it has recorded, whether they are undone or not.
    pub fn records(&self) -> &[Patch] {
        &self.records
    }

    /// A link that it has left, if it is on memory that the process can only read.
    pub fn link(&self, address: u64) -> Option<u64> {
        let mut mappings = self
            .mappings
            .iter()
            .filter(|it| maps::is_read_only_memory(it));
        mappings.find(|it| (it.start..it.end).contains(&address))?;
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, address).ok()?;
        Some(u64::from_le_bytes(word))
    }

    /// The stubs that still lead into the code, and how to change them back. There are none unless the run was killed together
    /// with its installer.
    pub fn left_stubs(&self) -> Vec<Patch> {
        // Another version may have something else there than records.
        if code::entries(&self.code, self.base).is_empty() {
            return Vec::new();
        }
        let is_code = |it: &&Patch| {
            let mut mappings = self.mappings.iter();
            mappings.any(|mapping| {
                let is_program = mapping.permissions == *b"r-xp" && mapping.inode != 0;
                is_program
                    && mapping.path != FILE
                    && (mapping.start..mapping.end).contains(&it.address)
            })
        };
        let is_left = |it: &&Patch| {
            let mut bytes = [0; BYTES];
            let read = self.memory.read_exact_at(&mut bytes, it.address);
            read.is_ok() && u32::from_ne_bytes(bytes) == it.new && it.is_sound()
        };
        let left = self.records.iter().filter(is_code).filter(is_left);
        left.map(Patch::undone).collect()
    }

    /// The slots that still lead into the code, with the functions that they led to before. There are none unless the run
    /// was killed together with its installer.
    pub fn left_slots(&self) -> Vec<Slot> {
        let entries = code::entries(&self.code, self.base);
        if entries.is_empty() {
            return Vec::new();
        }
        let is_program = |it: &Mapping| {
            let key = (it.device, it.inode);
            let mut others = self.mappings.iter();
            others.any(|other| other.executable && (other.device, other.inode) == key)
        };
        let searched = self.mappings.iter().filter(|it| {
            let [read, _, execute, private] = it.permissions;
            (read, execute, private) == (b'r', b'-', b'p') && it.inode != 0 && it.path != FILE
        });
        let mut slots = Vec::new();
        for mapping in searched.filter(|it| is_program(it)) {
            for begin in (mapping.start..mapping.end).step_by(AT_A_TIME as usize) {
                let mut bytes = vec![0; AT_A_TIME.min(mapping.end - begin) as usize];
                // Pages behind the end of the file can't be read, and have no slots.
                let length = self.memory.read_at(&mut bytes, begin).unwrap_or(0);
                bytes.truncate(length);
                let (words, _) = bytes.as_chunks::<8>();
                for (address, word) in (begin..).step_by(8).zip(words) {
                    let old = u64::from_le_bytes(*word);
                    if let Some((_, new)) = entries.iter().find(|(entry, _)| *entry == old) {
                        slots.push(Slot {
                            address,
                            old,
                            new: *new,
                        });
                    }
                }
            }
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inode that is found in the lines of a mapping, after one replacement.
    fn inode(from: &str, to: &str) -> Option<u64> {
        let text = "\
            10000-13000 r-xp 00000000 00:01 77 /memfd:heaptrace-fast (deleted)\n\
            13000-14000 rw-p 00003000 00:01 77 /memfd:heaptrace-fast (deleted)\n\
            14000-b4000 r--s 00000000 00:0f 9 anon_inode:bpf-map\n";
        assert!(text.contains(from));
        let mappings: Vec<Mapping> = maps::parse(&text.replacen(from, to, 1)).collect();
        inode_at(&mappings, 0x10000, SIZES, HINTS)
    }

    /// Check that a mapping is found only if all of its parts are there, with their lengths, protections and files.
    #[test]
    fn only_a_whole_mapping_is_found() {
        assert_eq!(inode("", ""), Some(77));
        for (from, to) in [
            ("10000-", "11000-"),
            ("r-xp", "rwxp"),
            ("rw-p", "r--p"),
            ("rw-p 00003000", "rw-p 00000000"),
            ("00:01 77", "00:01 78"),
            ("00:01 77", "00:02 77"),
            ("heaptrace-fast", "heaptrace-other"),
            ("-b4000", "-b3000"),
            ("14000-b4000", "15000-b5000"),
            ("r--s", "rw-s"),
            ("anon_inode:bpf-map", "/memfd:hints (deleted)"),
        ] {
            assert_eq!(inode(from, to), None, "{from} to {to}");
        }
    }
}
