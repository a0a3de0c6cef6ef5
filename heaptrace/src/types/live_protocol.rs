//! The question to a reader about tables of virtual functions, and its answer.
//!
//! Stage: types. Plain values that are sent between two processes; the tracer checks them against the limits here.

use serde::{Deserialize, Serialize};

use super::protocol::MAX_NAME;

/// Most places in one question.
pub(super) const MAX_PLACES: usize = 2048;

/// Asks which classes have their tables of virtual functions at these offsets of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClassesQuestion {
    pub(super) offsets: Vec<u64>,
}

/// The name of the class for each offset of the question; empty if there is no such table.
pub(super) type ClassesAnswer = Vec<String>;

/// Whether an answer keeps to the limits.
pub(super) fn is_sound(answer: &ClassesAnswer) -> bool {
    answer.len() <= MAX_PLACES && answer.iter().all(|it| it.len() <= 4 * MAX_NAME)
}
