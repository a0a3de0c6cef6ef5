//! Finds the code of a function that its compiler has put elsewhere.
//!
//! Part of `python`. GCC moves code that is rarely executed out of a function, and gives it unwind information of its own. A
//! stripped file has no symbol for it. Jumps lead there and back. The file is untrusted. Must not know Python.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection as _};

/// Most functions that are read.
const MAX_FUNCTIONS: usize = 1 << 18;

/// Longest common information entry (CIE); a compiler writes 24 bytes.
const MAX_CIE_BYTES: usize = 1 << 10;

/// Most targets that are examined. The cold code has tens of jumps from the function, and other functions have few.
const MAX_CANDIDATES: usize = 16;

/// The addresses of the code that a function's compiler has put elsewhere. `code` reads the code at an address.
pub(super) fn find<'data>(
    function: &Range<u64>,
    eh_frame: &[u8],
    bases: &BaseAddresses,
    code: impl Fn(&Range<u64>) -> Option<&'data [u8]>,
) -> Option<Range<u64>> {
    let functions = functions(eh_frame, bases);
    let mut counts: HashMap<u64, (usize, &Range<u64>)> = HashMap::new();
    for target in jumps(function.start, code(function)?) {
        let behind = functions.partition_point(|other| other.start <= target);
        let other = behind.checked_sub(1).and_then(|at| functions.get(at));
        if let Some(other) = other
            && other.contains(&target)
            && !function.contains(&other.start)
            && !other.contains(&function.start)
        {
            counts.entry(other.start).or_insert((0, other)).0 += 1;
        }
    }
    let mut candidates: Vec<_> = counts.into_values().collect();
    candidates.sort_unstable_by_key(|(count, other)| (usize::MAX - count, other.start));
    // A function that is called at the end of this one does not jump into the middle of this one.
    let leads_back = |other: &&Range<u64>| {
        let code = code(other).unwrap_or_default();
        jumps(other.start, code).any(|target| function.start < target && target < function.end)
    };
    let mut candidates = candidates.iter().take(MAX_CANDIDATES);
    candidates.find_map(|(_, other)| leads_back(other).then(|| (*other).clone()))
}

/// The targets of all jumps, by a difference of 32 bits, that code at this address can have. Bytes inside of other
/// instructions can look like a jump, but then hardly ever lead to code.
fn jumps(address: u64, code: &[u8]) -> impl Iterator<Item = u64> {
    (0..code.len()).filter_map(move |at| {
        let (difference, length) = match *code.get(at..)? {
            [0x0f, 0x80..=0x8f, a, b, c, d, ..] => ([a, b, c, d], 6),
            [0xe9, a, b, c, d, ..] => ([a, b, c, d], 5),
            _ => return None,
        };
        let next = address.wrapping_add(at as u64).wrapping_add(length);
        Some(next.wrapping_add_signed(i32::from_le_bytes(difference).into()))
    })
}

/// The code of all functions with unwind information, sorted.
fn functions(eh_frame: &[u8], bases: &BaseAddresses) -> Vec<Range<u64>> {
    let section = EhFrame::new(eh_frame, LittleEndian);
    let mut cies = HashMap::new();
    let mut functions = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if functions.len() >= MAX_FUNCTIONS {
            break;
        }
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        // Each CIE is read once, also if it is invalid: many functions could name a long one.
        let parsed = partial.parse(|section, bases, offset| {
            let cie = cies.entry(offset.0).or_insert_with(|| {
                let cie = section.cie_from_offset(bases, offset);
                cie.and_then(|cie| match cie.entry_len() {
                    ..=MAX_CIE_BYTES => Ok(cie),
                    _ => Err(gimli::Error::OffsetOutOfBounds(0)),
                })
            });
            cie.clone()
        });
        if let Ok(function) = parsed {
            let start = function.initial_address();
            functions.push(start..start.saturating_add(function.len()));
        }
    }
    functions.sort_unstable_by_key(|function| (function.start, function.end));
    functions
}
