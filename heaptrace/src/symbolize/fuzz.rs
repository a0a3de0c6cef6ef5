//! Properties that must hold for every file and every mangled name.
//!
//! Stage: symbolize.

use super::demangle::{self, MAX_NAME};
use super::elf::ElfFacts;
use super::protocol::{Facts, Names, UnitsAnswer};
use crate::reader::{Job, decode, encode};
use crate::sys;

/// Asserts that facts are within their limits, and that a debug link has no folder in it.
pub(crate) fn facts(data: &[u8]) -> u64 {
    let Ok(file) = sys::file_in_memory("input", data) else {
        return 0;
    };
    let Some(facts) = ElfFacts::read(&file) else {
        return 0;
    };
    let mut seen = 1 + facts.build_id.len().min(63) as u64 * 64;
    if let Some(link) = &facts.debug_link {
        assert!(!link.name.contains(['/', '\0']) && !link.name.starts_with(".."));
        assert!(facts.names_files && link.name.len() <= data.len());
        seen += 1;
    }
    for offset in [0, 1, data.len() as u64, u64::MAX] {
        seen += 2 * u64::from(facts.address(offset).is_some());
    }
    seen + 16 * u64::from(facts.has_dwarf) + 32 * u64::from(facts.compressed)
}

/// Asserts that each answer of a reader is either decoded or refused, and survives a round trip.
pub(crate) fn answer(job: Job, answer: &[u8]) -> u64 {
    if job == Job::Facts {
        let facts: Option<Option<Facts>> = decode(answer);
        return facts.map_or(0, |facts| {
            let link = facts.as_ref().and_then(|facts| facts.debug_link.as_ref());
            1 + u64::from(facts.is_some()) + 2 * u64::from(link.is_some())
        });
    }
    if job == Job::Units {
        let units: Option<Option<UnitsAnswer>> = decode(answer);
        return units.map_or(0, |units| {
            let wanted = units.as_ref().map_or(0, |it| it.wanted.len() as u64);
            1 + u64::from(units.is_some()) + 2 * wanted
        });
    }
    decode::<Names>(answer).map_or(0, |names| {
        assert!(decode::<Names>(&encode(&names)).as_ref() == Some(&names));
        1 + names.len() as u64 * 16 + names.iter().map(Vec::len).sum::<usize>() as u64
    })
}

/// Asserts that a demangled name is not longer than the limit, and is empty only for an empty name.
pub(crate) fn demangle(data: &[u8]) -> u64 {
    let name = String::from_utf8_lossy(data);
    let readable = demangle::demangle(&name);
    assert!(readable.len() <= MAX_NAME + '…'.len_utf8());
    assert_eq!(readable.is_empty(), name.is_empty());
    if readable == name {
        return 0;
    }
    1 + readable.len().min(1 << 14) as u64
}
