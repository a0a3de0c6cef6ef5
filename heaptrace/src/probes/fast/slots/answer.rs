//! The messages between the tracer and a reader about a file's slots.
//!
//! Stage: probes. Plain values that two processes exchange. The tracer checks an answer, and then each slot against the
//! mappings of a process: a hostile file may have taken over the reader.

use serde::{Deserialize, Serialize};

use crate::proc::maps::Mapping;

/// Bytes of a slot.
const SLOT: u64 = 8;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// Most slots of one file.
pub(super) const MAX_SLOTS: usize = 1024;

/// Most parts of one file that are loaded.
pub(super) const MAX_PARTS: usize = 64;

/// Most names in a question.
pub(super) const MAX_NAMES: usize = 64;

/// A question about a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Question {
    /// The functions whose slots are wanted.
    pub(super) names: Vec<String>,
}

/// The slots of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// The slots that are only called, by their addresses.
    pub slots: Vec<SlotOf>,
    /// How many slots of the functions are left out, because the file's code may also read them, or never calls them.
    pub skipped: u32,
    /// The functions of the slots that are left out: indexes in the question's names, each once, in their order.
    pub skipped_names: Vec<u16>,
    /// The version of glibc, if the file is its C library.
    pub glibc: Option<(u32, u32)>,
    /// Whether the file is musl's C library, or a program for it.
    pub is_musl: bool,
    /// Address in the file of the first part that is loaded, rounded down to a page.
    pub load_bias_vaddr: u64,
    /// Offset of that part in the file, rounded down to a page.
    pub load_bias_offset: u64,
    /// The parts that are loaded for writing. The dynamic linker may protect pages of them after it filled the slots.
    pub writable: Vec<Part>,
}

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotOf {
    /// The function: an index in the question's names.
    pub name: u16,
    /// The slot's address in the file.
    pub address: u64,
}

/// A part of a file that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its address in the file.
    pub address: u64,
    /// Its bytes in the file.
    pub size: u64,
}

impl Part {
    /// Whether a slot is in the part.
    pub fn has_slot(&self, address: u64) -> bool {
        address
            .checked_sub(self.address)
            .and_then(|within| within.checked_add(SLOT))
            .is_some_and(|end| end <= self.size)
    }
}

impl Slots {
    /// The values, if all of them are possible for a question with so many names about a file of this length.
    pub(super) fn checked(self, names: usize, length: u64) -> Option<Self> {
        let is_possible = |slot: &SlotOf| {
            usize::from(slot.name) < names
                && slot.address.is_multiple_of(SLOT)
                && self.writable.iter().any(|part| part.has_slot(slot.address))
        };
        let is_name = |name: &u16| usize::from(*name) < names;
        let ascends = |pair: &[SlotOf]| pair[0].address < pair[1].address;
        let fits = self.slots.len() <= MAX_SLOTS
            && self.writable.len() <= MAX_PARTS
            && self.slots.iter().all(is_possible)
            && self.slots.windows(2).all(ascends)
            && self.skipped_names.iter().all(is_name)
            && self.skipped_names.is_sorted_by(|one, other| one < other)
            && self.writable.iter().all(|part| part.size <= length)
            && self.load_bias_offset <= length
            && self.load_bias_vaddr.is_multiple_of(PAGE)
            && self.load_bias_offset.is_multiple_of(PAGE);
        fits.then_some(self)
    }

    /// The slots in a process, each with its address there, from the process's mappings of this file. A slot that lies in
    /// no such mapping is left out.
    pub fn in_process(&self, of_file: &[Mapping]) -> Vec<SlotOf> {
        let is_first = |it: &&Mapping| it.offset == self.load_bias_offset;
        let mut found = Vec::new();
        // A file can be loaded several times (`dlmopen`), or be mapped for reading as well.
        for first in of_file.iter().filter(is_first) {
            let bias = first.start.wrapping_sub(self.load_bias_vaddr);
            for slot in &self.slots {
                let address = slot.address.wrapping_add(bias);
                let has_slot = |it: &Mapping| {
                    let behind = it.end.checked_sub(address);
                    it.start <= address && behind.is_some_and(|behind| behind >= SLOT)
                };
                if address.is_multiple_of(SLOT) && of_file.iter().any(has_slot) {
                    found.push(SlotOf { address, ..*slot });
                }
            }
        }
        found.sort_unstable_by_key(|slot| slot.address);
        found.dedup_by_key(|slot| slot.address);
        found
    }
}
