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
    /// The first part that is loaded as code.
    pub code: Option<Part>,
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
    /// Its offset in the file.
    pub offset: u64,
    /// Its bytes in the file.
    pub size: u64,
}

impl Part {
    /// Whether a slot is in the part.
    pub fn has_slot(&self, address: u64) -> bool {
        self.offset_of(address).is_some()
    }

    /// The offset in the file of a slot in the part.
    fn offset_of(&self, address: u64) -> Option<u64> {
        let within = address.checked_sub(self.address)?;
        let fits = within.checked_add(SLOT)? <= self.size;
        fits.then(|| self.offset.checked_add(within))?
    }

    /// The distance between addresses in the file and in a process that has mapped the part there.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let start = self.offset - self.offset % PAGE;
        let is_it = mapping.executable && mapping.offset == start;
        let address = self.address - self.address % PAGE;
        is_it.then(|| mapping.start.wrapping_sub(address))
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
        let is_inside = |part: &Part| {
            let end = part.offset.checked_add(part.size);
            end.is_some_and(|end| end <= length)
        };
        let is_name = |name: &u16| usize::from(*name) < names;
        let ascends = |one: &SlotOf, other: &SlotOf| one.address < other.address;
        let fits = self.slots.len() <= MAX_SLOTS
            && self.writable.len() <= MAX_PARTS
            && self.slots.iter().all(is_possible)
            && self.slots.is_sorted_by(ascends)
            && self.skipped_names.iter().all(is_name)
            && self.skipped_names.is_sorted_by(|one, other| one < other)
            && self.writable.iter().chain(&self.code).all(is_inside)
            && self.load_bias_offset <= length
            && self.load_bias_vaddr.is_multiple_of(PAGE)
            && self.load_bias_offset.is_multiple_of(PAGE);
        fits.then_some(self)
    }

    /// The slots in a process, each with its address there, from the process's mappings of this file. A slot that lies in
    /// no such mapping is left out.
    pub fn in_process(&self, of_file: &[Mapping]) -> Vec<SlotOf> {
        // A file can be loaded several times (`dlmopen`). A mapping for reading the file is not executable.
        let biases = of_file.iter().filter_map(|it| self.code?.bias(it));
        let mut found: Vec<SlotOf> = biases
            .flat_map(|bias| self.slots.iter().map(move |slot| (bias, slot)))
            .filter_map(|(bias, slot)| {
                let parts = self.writable.iter();
                let offset = parts.filter_map(|it| it.offset_of(slot.address)).next()?;
                let address = slot.address.wrapping_add(bias);
                let has_slot = |it: &Mapping| {
                    let behind = it.end.checked_sub(address);
                    let within = address.checked_sub(it.start);
                    behind.is_some_and(|behind| behind >= SLOT)
                        && within.and_then(|within| it.offset.checked_add(within)) == Some(offset)
                };
                let is_mapped = address.is_multiple_of(SLOT) && of_file.iter().any(has_slot);
                is_mapped.then_some(SlotOf { address, ..*slot })
            })
            .collect();
        found.sort_unstable_by_key(|slot| slot.address);
        found.dedup_by_key(|slot| slot.address);
        found
    }
}
