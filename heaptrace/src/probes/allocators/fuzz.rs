//! Checks for fuzzers: properties of the answer about any file's allocators.
//!
//! Stage: probes.

use std::fs::File;

use super::answer::{Answer, Question};
use super::inspect;
use crate::reader::{decode, encode};

/// Checks that the reader's answer about any file passes the tracer's checks.
pub(crate) fn answer(file: File, length: u64) -> u64 {
    let question = Question {
        path: "input".to_owned(),
        named: None,
        mappings: true,
        kernel: (6, 18),
    };
    let bytes = inspect::answer(&encode(&question), &[file]);
    let answer: Option<Answer> = decode(&bytes);
    assert!(answer.is_some());
    seen(answer, length)
}

/// Checks that any bytes are refused as an answer, or give a bounded one.
pub(crate) fn check_answer(answer: &[u8]) -> u64 {
    match decode::<Answer>(answer) {
        None => 0,
        answer => 1 + seen(answer, 1 << 20),
    }
}

fn seen(answer: Option<Answer>, length: u64) -> u64 {
    match answer {
        Some(Answer::Probed(probed)) => {
            let (functions, returns) = (probed.functions.len() as u64, probed.returns.len() as u64);
            // A symbol may name an address behind the end of a file.
            let is_accepted = u64::from(probed.checked(length).is_some());
            2 + is_accepted + 4 * functions + 512 * returns
        }
        Some(Answer::Unprobed(_)) => 1,
        Some(Answer::Stripped { .. }) => 3,
        Some(Answer::Nothing) | None => 0,
    }
}
