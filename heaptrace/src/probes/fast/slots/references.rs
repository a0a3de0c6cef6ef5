//! Searches a file's code for references to slots, to tell those that are only called.
//!
//! Stage: probes. Runs in a reader. The code is not decoded, because nothing tells reliably where instructions begin. Instead,
//! every four bytes behind a byte that announces one are taken for a displacement: no reference is missed, and bytes that
//! only look like one leave a slot out.

use object::elf::{DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ};

use super::elf::{Elf, Load};
use super::stubs::{self, BEFORE, JUMP};

/// Most bytes of code that are searched. The slots of a file with more may be read, for all that is known.
const MAX_CODE: u64 = 256 << 20;

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Bytes of a displacement.
const WIDTH: usize = 4;

/// The bytes before the displacement of `call *slot(%rip)`.
const CALL: [u8; 2] = [0xff, 0x15];

/// Most stubs of a slot that are remembered. Linkers make one.
const MOST_STUBS: usize = 16;

/// Whether a byte (ModRM) says that the operand is a displacement from the instruction pointer. It is always the last one
/// before that displacement.
fn announces(form: u8) -> bool {
    form & 0b1100_0111 == 0b0000_0101
}

/// Bytes of a chunk that are seen again with the next one: the start of a displacement, and the stub's bytes before it.
const OVERLAP: usize = WIDTH - 1 + BEFORE;

/// Bytes that are passed over at once if no displacement in them is near a slot.
const BLOCK: usize = 256;

/// The bytes of an instruction that can follow its displacement: an immediate, or nothing.
const BEHIND: [u64; 4] = [0, 1, 2, 4];

/// A slot, and what refers to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Referred {
    slot: u64,
    /// The addresses of the jumps of its stubs.
    pub(super) stubs: Vec<u64>,
    /// Whether other instructions call by it.
    pub(super) has_other_calls: bool,
    is_read: bool,
}

impl Referred {
    /// Whether there is a call by the slot, and no other reference to it.
    pub(super) fn is_only_called(&self) -> bool {
        !self.is_read && (self.has_other_calls || !self.stubs.is_empty())
    }

    fn call(&mut self, jump: u64, before: &[u8]) {
        let is_stub = before.ends_with(&JUMP) && stubs::is_stub(jump, before);
        if is_stub && self.stubs.len() < MOST_STUBS {
            self.stubs.push(jump);
        } else {
            self.has_other_calls = true;
        }
    }
}

/// The references to some slots.
#[derive(Debug)]
pub(super) struct References {
    /// Sorted by their addresses.
    slots: Vec<Referred>,
}

impl References {
    /// Finds the references to slots in a file's code. The addresses are sorted.
    pub(super) fn find(file: &Elf<'_>, slots: Vec<u64>) -> Self {
        let slots: Vec<Referred> = slots
            .into_iter()
            .map(|slot| Referred {
                slot,
                ..Referred::default()
            })
            .collect();
        let mut search = Search::new(slots, file.is_fixed);
        // Linkers may put the tables beside the code. Their entries name the slots by their addresses.
        let tables = [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)];
        let tables = tables
            .into_iter()
            .filter_map(|(at, size)| file.table(at, size));
        search.tables.extend(tables);
        let code = || file.loads.iter().filter(|load| load.is_executable);
        let size = code().fold(0u64, |sum, load| sum.saturating_add(load.size));
        let is_read = !search.slots.is_empty()
            && size <= MAX_CODE
            && code().all(|load| search.load(file, load).is_some());
        let slots = if is_read { search.slots } else { Vec::new() };
        Self { slots }
    }

    /// What refers to a slot. `None` if the code could not be searched.
    pub(super) fn of(&self, slot: u64) -> Option<&Referred> {
        let found = self.slots.binary_search_by_key(&slot, |it| it.slot);
        found.ok().and_then(|at| self.slots.get(at))
    }
}

/// A range of numbers modulo 2³².
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u32,
    length: u32,
}

impl Range {
    /// The smallest range with these numbers.
    fn of(numbers: impl Iterator<Item = u32> + Clone) -> Self {
        let first = numbers.clone().min().unwrap_or(0);
        let last = numbers.max().unwrap_or(0);
        Self {
            first,
            length: last - first,
        }
    }

    fn has(self, number: u32) -> bool {
        number.wrapping_sub(self.first) <= self.length
    }
}

/// A search through code, chunk by chunk.
pub(super) struct Search {
    slots: Vec<Referred>,
    /// The sums of a displacement and the address behind it that refer to a slot, each with the bytes behind the displacement
    /// and the slot's index; sorted.
    sums: Vec<(u64, u64, usize)>,
    near: Range,
    /// Where the slots are, if the code may have their addresses in it.
    fixed: Option<Range>,
    /// Address and size of parts that have addresses of slots in them, and no code.
    tables: Vec<(u64, u64)>,
}

impl Search {
    fn new(slots: Vec<Referred>, is_fixed: bool) -> Self {
        let mut sums = Vec::new();
        for (index, it) in slots.iter().enumerate() {
            sums.extend(BEHIND.map(|behind| (it.slot.wrapping_sub(behind), behind, index)));
        }
        sums.sort_unstable();
        Self {
            near: Range::of(sums.iter().map(|(sum, _, _)| *sum as u32)),
            fixed: is_fixed.then(|| Range::of(slots.iter().map(|it| it.slot as u32))),
            sums,
            slots,
            tables: Vec::new(),
        }
    }

    /// Searches a part of a file. `None` if it can't be read.
    fn load(&mut self, file: &Elf<'_>, load: &Load) -> Option<()> {
        let mut chunk = Vec::new();
        let mut done: u64 = 0;
        while done < load.size {
            let start = chunk.len().saturating_sub(OVERLAP);
            chunk.drain(..start);
            let seen = chunk.len();
            let room = usize::try_from(load.size - done).map_or(CHUNK, |left| left.min(CHUNK));
            chunk.resize(seen + room, 0);
            file.read_at(chunk.get_mut(seen..)?, load.offset.checked_add(done)?)?;
            let address = load.address.wrapping_add(done).wrapping_sub(seen as u64);
            // The first displacement that was not complete in the last chunk.
            self.chunk(&chunk, address, seen.min(BEFORE));
            done += room as u64;
        }
        Some(())
    }

    /// Searches bytes, with displacements from `from` on.
    fn chunk(&mut self, bytes: &[u8], address: u64, from: usize) {
        let end = bytes.len().saturating_sub(WIDTH - 1);
        let mut at = from;
        while at < end {
            let block = (end - at).min(BLOCK);
            if self.may_have(bytes, address, at, block) {
                for place in at..at + block {
                    self.place(bytes, address, place);
                }
            }
            at += block;
        }
    }

    /// Whether one of the displacements that begin in a block may refer to a slot.
    fn may_have(&self, bytes: &[u8], address: u64, at: usize, block: usize) -> bool {
        (0..WIDTH).any(|phase| {
            let words = bytes.get(at + phase..bytes.len().min(at + phase + BLOCK));
            let words = words.unwrap_or_default();
            // A cut block is searched place by place.
            let (words, []) = words.as_chunks::<WIDTH>() else {
                return true;
            };
            let behind = (address as u32).wrapping_add((at + phase + WIDTH) as u32);
            let is_near = block < BLOCK || has::<{ WIDTH as u32 }>(words, behind, self.near);
            is_near || self.fixed.is_some_and(|range| has::<0>(words, 0, range))
        })
    }

    /// Notes what a displacement at a place refers to.
    fn place(&mut self, bytes: &[u8], address: u64, place: usize) {
        let Some(word) = bytes.get(place..).and_then(|it| it.first_chunk::<WIDTH>()) else {
            return;
        };
        let word = i32::from_le_bytes(*word);
        let address = address.wrapping_add(place as u64);
        let sum = address
            .wrapping_add(WIDTH as u64)
            .wrapping_add_signed(i64::from(word));
        let start = self.sums.partition_point(|(it, _, _)| *it < sum);
        let sums = self.sums.get(start..).unwrap_or_default();
        for (_, behind, index) in sums.iter().take_while(|(it, _, _)| *it == sum) {
            let before = bytes.get(place.saturating_sub(BEFORE)..place);
            let before = before.unwrap_or_default();
            let is_operand = before.last().is_some_and(|form| announces(*form));
            // With any prefix.
            let is_call = *behind == 0 && (before.ends_with(&CALL) || before.ends_with(&JUMP));
            if let Some(slot) = self.slots.get_mut(*index).filter(|_| is_operand) {
                if is_call {
                    slot.call(address.wrapping_sub(JUMP.len() as u64), before);
                } else {
                    slot.is_read = true;
                }
            }
        }
        let absolute = u64::from(word.cast_unsigned());
        let is_in = |(start, size): &(u64, u64)| address.wrapping_sub(*start) < *size;
        if self.fixed.is_some()
            && !self.tables.iter().any(is_in)
            && let Ok(found) = self.slots.binary_search_by_key(&absolute, |it| it.slot)
            && let Some(slot) = self.slots.get_mut(found)
        {
            slot.is_read = true;
        }
    }
}

/// Whether the sum of one of these words and of a number, which grows by `STEP` with each word, is in a range.
fn has<const STEP: u32>(words: &[[u8; WIDTH]], number: u32, range: Range) -> bool {
    // Without an early end, the compiler makes this loop one of vectors.
    let mut found = false;
    let mut number = number;
    for word in words {
        found |= range.has(u32::from_le_bytes(*word).wrapping_add(number));
        number = number.wrapping_add(STEP);
    }
    found
}
