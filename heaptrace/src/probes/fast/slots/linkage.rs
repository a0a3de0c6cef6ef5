//! Finds the slots of a file in its relocations.
//!
//! Stage: probes. Runs in a reader: the file may contain anything, so everything that is read has a bound.

use std::fs::File;

use object::elf::{
    DT_JMPREL, DT_PLTREL, DT_PLTRELSZ, DT_RELA, DT_RELACOUNT, DT_RELASZ, DT_STRSZ, DT_STRTAB,
    DT_SYMTAB, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, RelocationType,
};

use super::answer::{MAX_NAMES, MAX_SLOTS, MAX_STUBS, PAGE, Part, Question, SlotOf, Slots, StubOf};
use super::elf::{Elf, Load};
use super::libraries;
use super::references::{References, Referred};
use crate::reader::{decode, encode};

/// Bytes of a relocation, and of a symbol.
const ENTRY: usize = 24;

/// Most relocations of a table that are read. Those that name no symbol stand at the beginning, and are passed over.
const MAX_RELOCATIONS: u64 = 1 << 20;

/// Most symbols that are read.
const MAX_SYMBOLS: usize = 4 << 20;

/// Most bytes of the names of symbols.
const MAX_STRINGS: u64 = 256 << 20;

/// The reader's answer to a question about the first file.
pub(crate) fn answer(question: &[u8], files: &[File]) -> Vec<u8> {
    let answered = || {
        let question: Question = decode(question)?;
        let file = files.first()?;
        Some(slots(file, &question.names).unwrap_or_default())
    };
    answered().as_ref().map(encode).unwrap_or_default()
}

fn slots(file: &File, names: &[String]) -> Option<Slots> {
    let file = Elf::read(file)?;
    let first = file.loads.first()?;
    let writable = file.loads.iter().filter(|load| load.is_writable);
    let part = |load: &Load| Part {
        address: load.address,
        offset: load.offset,
        size: load.size,
    };
    let mut slots = Slots {
        glibc: libraries::glibc(&file),
        is_musl: libraries::is_musl(&file),
        load_bias_vaddr: first.address - first.address % PAGE,
        load_bias_offset: first.offset - first.offset % PAGE,
        code: file.loads.iter().find(|it| it.is_executable).map(part),
        writable: writable.map(part).collect(),
        ..Slots::default()
    };
    let mut found = found(&file, names).unwrap_or_default();
    let is_possible = |slot: &Found| {
        slot.address.is_multiple_of(8) && slots.writable.iter().any(|it| it.has_slot(slot.address))
    };
    found.retain(is_possible);
    found.sort_unstable_by_key(|slot| (slot.address, slot.may_be_read));
    found.dedup_by_key(|slot| slot.address);
    let dropped = found.len().saturating_sub(MAX_SLOTS);
    found.truncate(MAX_SLOTS);
    let doubtful: Vec<u64> = found
        .iter()
        .filter(|slot| slot.may_be_read)
        .map(|slot| slot.address)
        .collect();
    let references = References::find(&file, doubtful);
    let is_called = |slot: &Found| {
        let referred = references.of(slot.address);
        !slot.may_be_read || referred.is_some_and(Referred::is_only_called)
    };
    let (called, left_out): (Vec<Found>, Vec<Found>) = found.into_iter().partition(is_called);
    slots.skipped = u32::try_from(left_out.len() + dropped).unwrap_or(u32::MAX);
    let mut skipped_names = Vec::new();
    for slot in left_out {
        let referred = references.of(slot.address);
        let stubs = referred.map_or(&[][..], |it| &it.stubs);
        let room = MAX_STUBS.saturating_sub(slots.stubs.len());
        let before = slots.stubs.len();
        let stubs = stubs.iter().map(|jump| StubOf {
            name: slot.name,
            slot: slot.address,
            jump: *jump,
        });
        let is_possible = |stub: &StubOf| slots.code.is_some_and(|it| stub.is_in(&it));
        slots.stubs.extend(stubs.filter(is_possible).take(room));
        let added = slots.stubs.len() - before;
        // Without calls, nothing is slow.
        let has_all = referred.is_some_and(|it| !it.has_other_calls && it.stubs.len() == added);
        if !has_all {
            skipped_names.push(slot.name);
        }
    }
    slots.stubs.sort_unstable_by_key(|stub| stub.jump);
    skipped_names.sort_unstable();
    skipped_names.dedup();
    slots.skipped_names = skipped_names;
    slots.slots = called
        .into_iter()
        .map(|slot| SlotOf {
            name: slot.name,
            address: slot.address,
        })
        .collect();
    Some(slots)
}

/// A slot of a wanted function.
struct Found {
    name: u16,
    address: u64,
    /// Whether code may do something else with it than call it: it does not belong to the linkage table alone.
    may_be_read: bool,
}

/// A relocation that fills a slot with the address of a symbol.
struct Filled {
    symbol: usize,
    address: u64,
    may_be_read: bool,
}

fn found(file: &Elf<'_>, names: &[String]) -> Option<Vec<Found>> {
    let filled = filled(file);
    let symbols = filled.iter().map(|it| it.symbol);
    let last = symbols.filter(|symbol| *symbol < MAX_SYMBOLS).max()?;
    let symbols = (last as u64).saturating_add(1).checked_mul(ENTRY as u64)?;
    let symbols = file.bytes(file.value(DT_SYMTAB)?, symbols)?;
    let (symbols, _) = symbols.as_chunks::<ENTRY>();
    let strings = file.value(DT_STRSZ)?.min(MAX_STRINGS);
    let strings = file.bytes(file.value(DT_STRTAB)?, strings)?;
    let has_name = |text: &[u8], name: &String| {
        let behind = text.strip_prefix(name.as_bytes());
        behind.is_some_and(|behind| behind.first() == Some(&0))
    };
    let found = filled.into_iter().filter_map(|filled| {
        let [a, b, c, d, ..] = *symbols.get(filled.symbol)?;
        let text = strings.get(u32::from_le_bytes([a, b, c, d]) as usize..)?;
        let mut names = names.iter().take(MAX_NAMES);
        let name = names.position(|name| has_name(text, name))?;
        Some(Found {
            name: u16::try_from(name).ok()?,
            address: filled.address,
            may_be_read: filled.may_be_read,
        })
    });
    Some(found.collect())
}

/// The relocations that fill slots, from both tables.
fn filled(file: &Elf<'_>) -> Vec<Filled> {
    let mut filled = Vec::new();
    let of_calls = || {
        let is_long = file.value(DT_PLTREL)? == DT_RELA.0.cast_unsigned();
        file.table(DT_JMPREL, DT_PLTRELSZ).filter(|_| is_long)
    };
    let of_data = || {
        let (start, size) = file.table(DT_RELA, DT_RELASZ)?;
        let relative = file
            .value(DT_RELACOUNT)
            .unwrap_or(0)
            .checked_mul(ENTRY as u64)?;
        Some((start.checked_add(relative)?, size.checked_sub(relative)?))
    };
    for (start, size) in of_calls().into_iter().chain(of_data()) {
        let size = size.min(MAX_RELOCATIONS * ENTRY as u64);
        let bytes = file.bytes(start, size).unwrap_or_default();
        for relocation in bytes.as_chunks::<ENTRY>().0 {
            let ([address, info, addend], _) = relocation.as_chunks::<8>() else {
                continue;
            };
            let info = u64::from_le_bytes(*info);
            let kind = RelocationType(info as u32);
            let may_be_read = kind == R_X86_64_GLOB_DAT;
            let is_slot = may_be_read || kind == R_X86_64_JUMP_SLOT;
            if is_slot && *addend == [0; 8] {
                filled.push(Filled {
                    symbol: (info >> 32) as usize,
                    address: u64::from_le_bytes(*address),
                    may_be_read,
                });
            }
        }
    }
    filled
}
