//! What a reader is asked of a file's allocators, and what it says.
//!
//! Stage: probes. Plain values that go between two processes. An answer is checked before it becomes a finding: its
//! reader may be in a stranger's hands, and must not be able to do more than to have his own files probed.

use heaptrace_common::cookie::{ARGUMENTS, Register};
use serde::{Deserialize, Serialize};

use super::hooks;
use super::model::{Hook, OnReturn, Place};
use crate::probes::placement::Placed;

/// Most places, and most return instructions, that are believed of one file.
const MAX_PLACES: usize = 4096;

/// Most names of one place, and most notes on one file.
const MAX_WORDS: usize = 4096;

/// Longest name, kind or note that is believed.
const MAX_WORD: usize = 4096;

/// Most parts of code that are believed of one file.
const MAX_PARTS: usize = 2 * MAX_PLACES;

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Question {
    /// Path of the file, as its process sees it.
    pub(super) path: String,
    /// The prefix of the functions that the user names; the file is an allocator by their word.
    pub(super) named: Option<String>,
    /// Whether functions that map memory are wanted, too.
    pub(super) mappings: bool,
    /// The kernel's version.
    pub(super) kernel: (u32, u32),
}

/// What is said.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) enum Answer {
    /// It has allocators that can be probed.
    Probed(Probed),
    /// It has one that can't, or something else that allocates; a reason.
    Unprobed(String),
    /// It has none.
    Nothing,
    /// It has no symbols; its debug file may have some.
    Stripped {
        /// Which one would be that.
        wanted: DebugFile,
        /// What is to be said if there is none.
        otherwise: Box<Answer>,
    },
}

/// Names of a debug file.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct DebugFile {
    pub(super) build_id: Vec<u8>,
    /// A name without a folder.
    pub(super) link: Option<String>,
}

/// The allocators in a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub(super) struct Probed {
    pub(super) places: Vec<ToldPlace>,
    pub(super) rets: Vec<u64>,
    pub(super) notes: Vec<String>,
    pub(super) own_code: Vec<(u64, u64)>,
}

/// A place to probe, as it is told.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct ToldPlace {
    pub(super) offset: u64,
    pub(super) size: Option<u64>,
    pub(super) reach: (u64, u64),
    pub(super) entry: String,
    /// See [`OnReturn`].
    pub(super) on_return: u8,
    pub(super) names: Vec<String>,
    pub(super) kind: String,
    pub(super) behind: u64,
    pub(super) registers: [u8; ARGUMENTS],
    pub(super) instruction: String,
    pub(super) is_stepped: bool,
    pub(super) reason: String,
}

/// What becomes of a return, by its number on the way.
const ON_RETURN: [OnReturn; 4] = [
    OnReturn::Ignored,
    OnReturn::Probed,
    OnReturn::Instructions,
    OnReturn::Mapped,
];

impl From<Place> for ToldPlace {
    fn from(place: Place) -> Self {
        let Place {
            offset,
            size,
            placed,
            reach,
            hook,
            names,
            kind,
        } = place;
        let on_return = ON_RETURN.iter().position(|it| *it == hook.on_return);
        Self {
            offset,
            size,
            reach,
            entry: hook.entry.to_owned(),
            on_return: on_return.unwrap_or(ON_RETURN.len()) as u8,
            names,
            kind,
            behind: placed.offset,
            registers: placed.registers.map(Register::encoding),
            instruction: placed.instruction,
            is_stepped: placed.is_stepped,
            reason: placed.reason,
        }
    }
}

impl ToldPlace {
    /// The place, if it can be one in a file of this length.
    fn checked(self, length: u64) -> Option<Place> {
        let on_return = *ON_RETURN.get(usize::from(self.on_return))?;
        let entry = hooks::entry(&self.entry)?;
        let mut registers = Register::PASSED;
        for (register, number) in registers.iter_mut().zip(self.registers) {
            *register = Register::of_encoding(number)?;
        }
        let words = [&self.kind, &self.instruction, &self.reason];
        let is_short = |word: &String| word.len() <= MAX_WORD;
        let fits = self.offset.checked_add(self.behind)? < length
            && words.into_iter().all(is_short)
            && self.names.len() <= MAX_WORDS
            && self.names.iter().all(is_short);
        fits.then_some(Place {
            offset: self.offset,
            size: self.size,
            placed: Placed {
                offset: self.behind,
                registers,
                instruction: self.instruction,
                is_stepped: self.is_stepped,
                reason: self.reason,
            },
            reach: self.reach,
            hook: Hook { entry, on_return },
            names: self.names,
            kind: self.kind,
        })
    }
}

impl Probed {
    /// The places, if all of this can be true of a file of this length.
    pub(super) fn checked(self, length: u64) -> Option<Checked> {
        let fits = self.places.len() <= MAX_PLACES
            && self.rets.len() <= MAX_PLACES
            && self.rets.iter().all(|offset| *offset < length)
            && self.own_code.len() <= MAX_PARTS
            && self.notes.len() <= MAX_WORDS
            && self.notes.iter().all(|note| note.len() <= MAX_WORD);
        let places: Option<Vec<Place>> = self
            .places
            .into_iter()
            .map(|place| place.checked(length))
            .collect();
        fits.then_some(Checked {
            places: places?,
            rets: self.rets,
            notes: self.notes,
            own_code: self.own_code,
        })
    }
}

/// What was said, and can be true.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) places: Vec<Place>,
    pub(super) rets: Vec<u64>,
    pub(super) notes: Vec<String>,
    pub(super) own_code: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> ToldPlace {
        ToldPlace {
            offset: 16,
            size: Some(32),
            reach: (0, 64),
            entry: "malloc_entry".to_owned(),
            on_return: 1,
            names: vec!["malloc".to_owned()],
            kind: "glibc".to_owned(),
            behind: 4,
            registers: Register::PASSED.map(Register::encoding),
            instruction: "push rbp".to_owned(),
            is_stepped: false,
            reason: String::new(),
        }
    }

    /// Check that a place comes through as it was, and that one outside of the file, or with a program or a register that
    /// there is not, is none.
    #[test]
    fn places_are_checked() {
        let place = told().checked(100).unwrap();
        assert_eq!(ToldPlace::from(place), told());
        let wrong = [
            ToldPlace {
                offset: 96,
                ..told()
            },
            ToldPlace {
                behind: u64::MAX,
                ..told()
            },
            ToldPlace {
                entry: "exec_entry".to_owned(),
                ..told()
            },
            ToldPlace {
                on_return: 4,
                ..told()
            },
            ToldPlace {
                registers: [99; ARGUMENTS],
                ..told()
            },
            ToldPlace {
                kind: "x".repeat(MAX_WORD + 1),
                ..told()
            },
        ];
        for wrong in wrong {
            let all = Probed {
                places: vec![wrong],
                ..Probed::default()
            };
            assert!(all.checked(100).is_none());
        }
        let rets = Probed {
            rets: vec![100],
            ..Probed::default()
        };
        assert!(rets.checked(100).is_none());
    }
}
