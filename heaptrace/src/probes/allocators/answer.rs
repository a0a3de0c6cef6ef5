//! The messages between the tracer and a reader about a file's allocators.
//!
//! Stage: probes. Plain values that two processes exchange. An answer is checked before it becomes a finding: a hostile file
//! may have taken over the reader, which must then have no effect beyond the probes of its owner's own files.

use heaptrace_common::cookie::{ARGUMENTS, Register};
use serde::{Deserialize, Serialize};

use super::hooks;
use super::model::{Hook, OnReturn, ProbedFunction};
use crate::probes::placement::{Placed, Skipped};

/// Most functions, and most return instructions, that are accepted for one file.
const MAX_FUNCTIONS: usize = 4096;

/// Most names of one function, and most notes on one file.
const MAX_WORDS: usize = 4096;

/// Longest name, kind or note that is accepted.
const MAX_WORD: usize = 4096;

/// Most parts of own code that are accepted for one file.
const MAX_PARTS: usize = 2 * MAX_FUNCTIONS;

/// A question about a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Question {
    /// Path of the file in its process's file system.
    pub(super) path: String,
    /// The prefix of the functions, if the user names the file as an allocator.
    pub(super) named: Option<String>,
    /// Whether functions that map memory are wanted as well.
    pub(super) mappings: bool,
    /// The kernel's version.
    pub(super) kernel: (u32, u32),
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) enum Answer {
    /// It has allocators that can be probed.
    Probed(Probed),
    /// It has an allocator, or other code that allocates, that can't be probed; with the reason.
    Unprobed(String),
    /// It has no allocator.
    Nothing,
    /// It has no symbols of allocators; its debug file may have some.
    Stripped {
        /// Names of the debug file.
        wanted: DebugFile,
        /// The answer if there is no debug file.
        otherwise: Box<Answer>,
    },
}

/// Names of a debug file.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct DebugFile {
    pub(super) build_id: Vec<u8>,
    /// A file name without a folder.
    pub(super) link: Option<String>,
}

/// The allocators in a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub(super) struct Probed {
    pub(super) functions: Vec<FunctionMessage>,
    pub(super) returns: Vec<u64>,
    pub(super) notes: Vec<String>,
    pub(super) own_code: Vec<(u64, u64)>,
}

/// A [`ProbedFunction`] in a message.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct FunctionMessage {
    pub(super) offset: u64,
    pub(super) size: Option<u64>,
    pub(super) reach: (u64, u64),
    pub(super) entry: String,
    /// Index in [`ON_RETURN`].
    pub(super) on_return: u8,
    pub(super) names: Vec<String>,
    pub(super) kind: String,
    pub(super) probe_offset: u64,
    pub(super) registers: [u8; ARGUMENTS],
    pub(super) instruction: String,
    pub(super) is_stepped: bool,
    pub(super) reason: String,
    pub(super) skipped: Option<Skipped>,
}

/// The values of [`OnReturn`] by their number in messages.
const ON_RETURN: [OnReturn; 4] = [
    OnReturn::Ignored,
    OnReturn::Probed,
    OnReturn::Instructions,
    OnReturn::Mapped,
];

impl From<ProbedFunction> for FunctionMessage {
    fn from(function: ProbedFunction) -> Self {
        let ProbedFunction {
            offset,
            size,
            placed,
            skipped,
            reach,
            hook,
            names,
            kind,
        } = function;
        let on_return = ON_RETURN.iter().position(|it| *it == hook.on_return);
        Self {
            offset,
            size,
            reach,
            entry: hook.entry.to_owned(),
            on_return: on_return.unwrap_or(ON_RETURN.len()) as u8,
            names,
            kind,
            probe_offset: placed.offset,
            registers: placed.registers.map(Register::encoding),
            instruction: placed.instruction,
            is_stepped: placed.is_stepped,
            reason: placed.reason,
            skipped,
        }
    }
}

impl FunctionMessage {
    /// The function, if all values are possible in a file of this length.
    fn checked(self, length: u64) -> Option<ProbedFunction> {
        let on_return = *ON_RETURN.get(usize::from(self.on_return))?;
        let entry = hooks::entry(&self.entry)?;
        let mut registers = Register::PASSED;
        for (register, number) in registers.iter_mut().zip(self.registers) {
            *register = Register::of_encoding(number)?;
        }
        let words = [&self.kind, &self.instruction, &self.reason];
        let is_short = |word: &String| word.len() <= MAX_WORD;
        let behind = length.saturating_sub(self.offset);
        let is_sound = |skipped: &Skipped| skipped.is_sound(self.probe_offset, behind);
        let fits = self.offset.checked_add(self.probe_offset)? < length
            && self.skipped.as_ref().is_none_or(is_sound)
            && words.into_iter().all(is_short)
            && self.names.len() <= MAX_WORDS
            && self.names.iter().all(is_short);
        fits.then_some(ProbedFunction {
            offset: self.offset,
            size: self.size,
            placed: Placed {
                offset: self.probe_offset,
                registers,
                instruction: self.instruction,
                is_stepped: self.is_stepped,
                reason: self.reason,
            },
            skipped: self.skipped,
            reach: self.reach,
            hook: Hook { entry, on_return },
            names: self.names,
            kind: self.kind,
        })
    }
}

impl Probed {
    /// The checked values, if all of them are possible in a file of this length.
    pub(super) fn checked(self, length: u64) -> Option<Checked> {
        let fits = self.functions.len() <= MAX_FUNCTIONS
            && self.returns.len() <= MAX_FUNCTIONS
            && self.returns.iter().all(|offset| *offset < length)
            && self.own_code.len() <= MAX_PARTS
            && self.notes.len() <= MAX_WORDS
            && self.notes.iter().all(|note| note.len() <= MAX_WORD);
        let functions: Option<Vec<ProbedFunction>> = self
            .functions
            .into_iter()
            .map(|function| function.checked(length))
            .collect();
        fits.then_some(Checked {
            functions: functions?,
            returns: self.returns,
            notes: self.notes,
            own_code: self.own_code,
        })
    }
}

/// A checked [`Probed`].
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) functions: Vec<ProbedFunction>,
    pub(super) returns: Vec<u64>,
    pub(super) notes: Vec<String>,
    pub(super) own_code: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::placement::Fix;

    fn skipped() -> Skipped {
        Skipped {
            bytes: vec![0x90; 12],
            fixes: vec![
                Fix {
                    at: 1,
                    end: 5,
                    target: -8,
                },
                Fix {
                    at: 7,
                    end: 12,
                    target: 1 << 30,
                },
            ],
            resume: 5,
        }
    }

    fn message() -> FunctionMessage {
        FunctionMessage {
            offset: 16,
            size: Some(32),
            reach: (0, 64),
            entry: "malloc_entry".to_owned(),
            on_return: 1,
            names: vec!["malloc".to_owned()],
            kind: "glibc".to_owned(),
            probe_offset: 4,
            registers: Register::PASSED.map(Register::encoding),
            instruction: "push rbp".to_owned(),
            is_stepped: false,
            reason: String::new(),
            skipped: Some(skipped()),
        }
    }

    /// Check that a message gives the function that it was made of, and that messages with an offset outside of the file,
    /// an unknown program or an unknown register are refused.
    #[test]
    fn functions_are_checked() {
        let function = message().checked(100).unwrap();
        assert_eq!(FunctionMessage::from(function), message());
        let wrong = [
            FunctionMessage {
                offset: 96,
                ..message()
            },
            FunctionMessage {
                probe_offset: u64::MAX,
                ..message()
            },
            FunctionMessage {
                entry: "exec_entry".to_owned(),
                ..message()
            },
            FunctionMessage {
                on_return: 4,
                ..message()
            },
            FunctionMessage {
                registers: [99; ARGUMENTS],
                ..message()
            },
            FunctionMessage {
                kind: "x".repeat(MAX_WORD + 1),
                ..message()
            },
        ];
        for wrong in wrong {
            let all = Probed {
                functions: vec![wrong],
                ..Probed::default()
            };
            assert!(all.checked(100).is_none());
        }
        let fix = |at, end, target| Skipped {
            fixes: vec![Fix { at, end, target }],
            ..skipped()
        };
        let wrong = [
            fix(9, 13, 0),
            fix(8, 11, 0),
            fix(255, 3, 0),
            fix(1, 5, i64::MIN),
            Skipped {
                fixes: skipped().fixes.into_iter().rev().collect(),
                ..skipped()
            },
            Skipped {
                bytes: vec![0x90; 97],
                ..skipped()
            },
            Skipped {
                bytes: Vec::new(),
                fixes: Vec::new(),
                resume: 5,
            },
            // Before the probe, and behind the end of the file.
            Skipped {
                resume: 4,
                ..skipped()
            },
            Skipped {
                resume: 85,
                ..skipped()
            },
        ];
        for wrong in wrong {
            let message = FunctionMessage {
                skipped: Some(wrong),
                ..message()
            };
            assert!(message.clone().checked(100).is_none(), "{message:?}");
        }
        let returns = Probed {
            returns: vec![100],
            ..Probed::default()
        };
        assert!(returns.checked(100).is_none());
    }
}
