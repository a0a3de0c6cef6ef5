//! A walk through the code behind a call, and what it found.
//!
//! Stage: types. Runs in a reader. Plain values. Must not know instructions.

use std::rc::Rc;

use super::frames::Around;
use super::variables::{FrameBase, Variable};
use crate::types::cpp::size_of;
use crate::types::people;
use crate::types::protocol::{Evidence, SizedType};

/// What became of a result.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// What it is stored as.
    pub(super) stored: Option<SizedType>,
    pub(super) constructed: Option<(SizedType, Evidence)>,
    pub(super) is_returned: bool,
}

/// The place of a walk through the code.
pub(super) struct Walk<'a> {
    pub(super) around: Option<&'a Around>,
    pub(super) variables: Rc<Vec<Variable>>,
    pub(super) base: Option<FrameBase>,
    pub(super) fate: Fate,
    /// Bytes as which the result is stored. It may still be stored as something else.
    pub(super) bytes: Option<SizedType>,
    /// Whether a constructor may still follow.
    pub(super) may_construct: bool,
    /// Whether an array is allocated, which may begin with its length.
    pub(super) is_array: bool,
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl Walk<'_> {
    /// The function returns. If it gives out what is behind the block's beginning, a number there is its own, such as the size of the block.
    pub(super) fn give_out_rest(&mut self, is_behind: bool) {
        let is_number = |it: &mut SizedType| size_of(&people::cpp(&it.name)).is_some();
        if is_behind {
            self.fate.stored.take_if(is_number);
        }
    }

    /// Takes what the result is stored as, if it was not known before.
    pub(super) fn store_as(&mut self, found: Option<SizedType>) {
        match found {
            Some(found) if found.bytes == 1 && !found.is_open => {
                self.bytes.get_or_insert(found);
            }
            Some(found) => {
                self.fate.stored.get_or_insert(found);
            }
            None => {}
        }
    }
}
