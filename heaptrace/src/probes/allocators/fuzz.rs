//! What has to hold of what is said of any file's allocators.
//!
//! Stage: probes. For fuzzers only.

use std::fs::File;

use super::answer::{Answer, Question};
use super::inspect;
use crate::reader::{decode, encode};

/// What is said of any file is believed: it passes the checks of whoever asked.
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

/// What is said of a file is refused, or bounded.
pub(crate) fn check_answer(answer: &[u8]) -> u64 {
    match decode::<Answer>(answer) {
        None => 0,
        answer => 1 + seen(answer, 1 << 20),
    }
}

fn seen(answer: Option<Answer>, length: u64) -> u64 {
    match answer {
        Some(Answer::Probed(probed)) => {
            let (places, rets) = (probed.places.len() as u64, probed.rets.len() as u64);
            // A symbol may name a place behind the end of a file.
            let believed = u64::from(probed.checked(length).is_some());
            2 + believed + 4 * places + 512 * rets
        }
        Some(Answer::Unprobed(_)) => 1,
        Some(Answer::Stripped { .. }) => 3,
        Some(Answer::Nothing) | None => 0,
    }
}
