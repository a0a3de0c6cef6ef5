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

/// Most linkage stubs of one file.
pub(super) const MAX_STUBS: usize = 64;

/// Bytes of a stub's jump, `jmp *slot(%rip)`.
pub const JUMP_BYTES: u64 = 6;

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
    /// The functions of the slots that are left out, and by which other code than stubs calls, for all that is known: indexes in
    /// the question's names, each once, in their order.
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
    /// The linkage stubs of the slots that are left out, by the addresses of their jumps.
    pub stubs: Vec<StubOf>,
}

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotOf {
    /// The function: an index in the question's names.
    pub name: u16,
    /// The slot's address in the file.
    pub address: u64,
}

/// A linkage stub: it jumps to the address in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StubOf {
    /// The function: an index in the question's names.
    pub name: u16,
    /// The slot's address in the file.
    pub slot: u64,
    /// The address in the file of the stub's jump.
    pub jump: u64,
}

impl StubOf {
    /// Whether its jump is in a part.
    pub(super) fn is_in(&self, part: &Part) -> bool {
        part.offset_of(self.jump, JUMP_BYTES).is_some()
    }
}

/// A stub in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StubIn {
    /// The stub, with its addresses in the process.
    pub stub: StubOf,
    /// The offset in the file of its jump.
    pub offset: u64,
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
        self.offset_of(address, SLOT).is_some()
    }

    /// The offset in the file of some bytes in the part.
    fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        let within = address.checked_sub(self.address)?;
        let fits = within.checked_add(length)? <= self.size;
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
        let is_slot = |address: u64| {
            let mut parts = self.writable.iter();
            address.is_multiple_of(SLOT) && parts.any(|part| part.has_slot(address))
        };
        let is_possible = |slot: &SlotOf| usize::from(slot.name) < names && is_slot(slot.address);
        let is_stub = |stub: &StubOf| {
            usize::from(stub.name) < names
                && is_slot(stub.slot)
                && self.code.is_some_and(|part| stub.is_in(&part))
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
            && self.stubs.len() <= MAX_STUBS
            && self.stubs.iter().all(is_stub)
            && self.stubs.is_sorted_by(|one, other| one.jump < other.jump)
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
        let mut found: Vec<SlotOf> = self
            .biases(of_file)
            .flat_map(|bias| self.slots.iter().map(move |slot| (bias, slot)))
            .filter_map(|(bias, slot)| {
                let address = self.slot_at(slot.address, bias, of_file)?;
                Some(SlotOf { address, ..*slot })
            })
            .collect();
        found.sort_unstable_by_key(|slot| slot.address);
        found.dedup_by_key(|slot| slot.address);
        found
    }

    /// The same for stubs. A stub's jump lies in a mapping of code that the process does not share with others.
    pub fn stubs_in_process(&self, of_file: &[Mapping]) -> Vec<StubIn> {
        let mut found: Vec<StubIn> = self
            .biases(of_file)
            .flat_map(|bias| self.stubs.iter().map(move |stub| (bias, stub)))
            .filter_map(|(bias, stub)| {
                let slot = self.slot_at(stub.slot, bias, of_file)?;
                let offset = self.code?.offset_of(stub.jump, JUMP_BYTES)?;
                let jump = stub.jump.wrapping_add(bias);
                let is_code = |it: &Mapping| it.permissions == *b"r-xp";
                let stub = StubOf {
                    slot,
                    jump,
                    ..*stub
                };
                has(of_file, is_code, (jump, JUMP_BYTES), offset).then_some(StubIn { stub, offset })
            })
            .collect();
        found.sort_unstable_by_key(|it| it.stub.jump);
        found.dedup_by_key(|it| it.stub.jump);
        found
    }

    /// The distances between addresses in the file and in a process. A file can be loaded several times (`dlmopen`). A
    /// mapping for reading the file is not executable.
    fn biases(&self, of_file: &[Mapping]) -> impl Iterator<Item = u64> {
        of_file.iter().filter_map(|it| self.code?.bias(it))
    }

    /// The address in a process of a slot.
    fn slot_at(&self, slot: u64, bias: u64, of_file: &[Mapping]) -> Option<u64> {
        let mut parts = self.writable.iter();
        let offset = parts.find_map(|it| it.offset_of(slot, SLOT))?;
        let address = slot.wrapping_add(bias);
        let is_mapped = has(of_file, |_| true, (address, SLOT), offset);
        (address.is_multiple_of(SLOT) && is_mapped).then_some(address)
    }
}

/// Whether a mapping has some bytes of its file at an address.
fn has(
    of_file: &[Mapping],
    is_wanted: impl Fn(&Mapping) -> bool,
    (address, length): (u64, u64),
    offset: u64,
) -> bool {
    of_file.iter().filter(|it| is_wanted(it)).any(|it| {
        let behind = it.end.checked_sub(address);
        let within = address.checked_sub(it.start);
        behind.is_some_and(|behind| behind >= length)
            && within.and_then(|within| it.offset.checked_add(within)) == Some(offset)
    })
}
