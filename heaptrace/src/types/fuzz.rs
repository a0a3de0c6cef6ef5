//! Properties that must hold for every file, every answer of a reader, and any names of functions.
//!
//! Stage: types.

use super::chain::{Chain, Link, Sizes};
use super::decide::decide;
use super::live_protocol::{self, ClassesAnswer, ClassesQuestion};
use super::protocol::{MAX_NAME, Site, SizedType, TypesAnswer, TypesQuestion, is_sound};
use crate::join::BlockSizes;
use crate::reader::{decode, encode};
use crate::symbolize::{Passed, own_panics};
use crate::sys;

/// Most calls that an input is asked about, and most offsets that may be anywhere.
const CALLS: usize = 32;
const OTHERS: usize = 16;

/// Asserts that the reader's answer about calls keeps to the limits, and that heaptrace's own code did not panic on the way: about what may be direct calls,
/// by their first byte, and about offsets all over the file.
pub(crate) fn file(data: &[u8]) -> u64 {
    const CALL: u8 = 0xe8;
    const LAST_BYTE: usize = 4;
    let Ok(file) = sys::file_in_memory("input", data) else {
        return 0;
    };
    let calls = data.iter().enumerate().filter(|(_, byte)| **byte == CALL);
    let calls = calls.map(|(at, _)| at + LAST_BYTE).take(CALLS);
    let others = (0..data.len()).step_by(data.len().div_ceil(OTHERS).max(1));
    let offsets: Vec<u64> = calls.chain(others).map(|at| at as u64).collect();
    let count = offsets.len();
    let question = encode(&TypesQuestion {
        offsets,
        ..TypesQuestion::default()
    });
    let caught = own_panics();
    let answer = super::read::answer(&question, &[file], |_| Passed::default());
    let sites: TypesAnswer = decode(&answer).unwrap_or_default();
    assert!(is_sound(&sites) && (sites.is_empty() || sites.len() == count));
    let tables = tables(data);
    assert_eq!(own_panics(), caught, "a panic of heaptrace was caught");
    let mut seen = u64::from(!sites.is_empty()) + 65_536 * tables;
    for site in &sites {
        seen += 2 * site.functions.len().min(16) as u64
            + 64 * u64::from(site.stored.is_some())
            + 128 * u64::from(site.is_returned)
            + 256 * u64::from(site.constructed.is_some())
            + 512 * u64::from(site.target.is_some());
    }
    seen
}

/// Asserts that the reader's answer about tables all over a file keeps to the limits.
fn tables(data: &[u8]) -> u64 {
    let Ok(file) = sys::file_in_memory("input", data) else {
        return 0;
    };
    let step = (data.len() / 512).max(8).next_multiple_of(8);
    let question = encode(&ClassesQuestion {
        offsets: (0..data.len() as u64).step_by(step).collect(),
    });
    let answer = super::read::answer_classes(&question, &[file]);
    let names: ClassesAnswer = decode(&answer).unwrap_or_default();
    assert!(live_protocol::is_sound(&names));
    names.iter().filter(|it| !it.is_empty()).count() as u64
}

/// Decodes an answer about classes; 0 if it is refused.
pub(crate) fn classes(answer: &[u8]) -> u64 {
    let names = decode::<ClassesAnswer>(answer).filter(live_protocol::is_sound);
    names.map_or(0, |names| 1 + names.len() as u64)
}

/// Decodes an answer of the reader; 0 if it is refused.
pub(crate) fn answer(answer: &[u8]) -> u64 {
    let Some(sites) = decode::<TypesAnswer>(answer).filter(is_sound) else {
        return 0;
    };
    1 + sites.len() as u64 * 8
        + sites
            .iter()
            .map(|it| it.functions.len() as u64)
            .sum::<u64>()
}

/// Asserts that the functions of a stack give a type whose names are not much longer than theirs, or none. The input: a byte for the language, the size of
/// the blocks, and the names of functions, by line.
pub(crate) fn names(data: &[u8]) -> u64 {
    let [language, size, text @ ..] = data else {
        return 0;
    };
    let text = String::from_utf8_lossy(text);
    let is_rust = language % 2 == 1;
    let mut chain = Chain::default();
    for (call, line) in text.lines().enumerate().take(64) {
        let (name, rest) = line.split_once('\t').unwrap_or((line, ""));
        let (file, of) = rest.split_once('\t').unwrap_or((rest, ""));
        let parameter = SizedType {
            name: of.to_owned(),
            bytes: u64::from(*size),
            ..SizedType::default()
        };
        chain.links.push(Link {
            name: name.to_owned(),
            file: file.to_owned(),
            parameters: vec![parameter.clone()],
            is_rust,
            is_symbol: language & 2 != 0,
            call,
            ..Link::default()
        });
        chain.sites.push(Site {
            symbol: name.to_owned(),
            allocator_calls: 1,
            noted: Some(parameter).filter(|_| language & 4 != 0),
            ..Site::default()
        });
    }
    let ends = BlockSizes {
        smallest: u64::from(*size),
        largest: u64::from(*size) * 3,
    };
    let sizes = Sizes {
        ends: Some(ends).filter(|_| language & 8 != 0),
        sum: None,
    };
    let Some(found) = decide(&chain, &sizes) else {
        return 1;
    };
    assert!(found.name.len() <= 2 * text.len() + MAX_NAME);
    2 + found.way as u64 + 8 * found.name.len().min(64) as u64
}
