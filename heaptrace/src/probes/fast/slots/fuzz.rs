//! Checks for fuzzers: properties of the answer about any file's slots.
//!
//! Stage: probes.

use std::fs::File;

use super::answer::{Question, Slots};
use super::linkage;
use crate::reader::{decode, encode};

const NAMES: [&str; 4] = ["malloc", "free", "calloc", "realloc"];

/// Checks that the reader's answer about any file passes the tracer's checks.
pub(crate) fn answer(file: File, length: u64) -> u64 {
    let question = Question {
        names: NAMES.map(str::to_owned).to_vec(),
    };
    let bytes = linkage::answer(&encode(&question), &[file]);
    let slots: Option<Slots> = decode(&bytes);
    assert!(slots.is_some());
    let checked = slots.and_then(|slots| slots.checked(NAMES.len(), length));
    assert!(checked.is_some());
    checked.map_or(0, |slots| seen(&slots))
}

/// Checks that any bytes are refused as an answer, or give a bounded one.
pub(crate) fn check_answer(answer: &[u8]) -> u64 {
    let slots = decode::<Slots>(answer).and_then(|slots| slots.checked(NAMES.len(), 1 << 20));
    // An answer that is decoded and refused is no less valid as a message.
    match slots {
        Some(slots) => 2 + seen(&slots),
        None => u64::from(decode::<Slots>(answer).is_some()),
    }
}

fn seen(slots: &Slots) -> u64 {
    let flags = u64::from(slots.glibc.is_some()) | u64::from(slots.is_musl) << 1;
    let parts = slots.writable.len() as u64;
    let counts = (slots.slots.len() as u64) << 16 | u64::from(slots.skipped.min(255)) << 8;
    let stubs = slots.stubs.len() as u64;
    counts | stubs << 32 | parts << 2 | flags
}
