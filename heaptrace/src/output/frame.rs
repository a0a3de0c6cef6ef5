//! One frame of a call stack, with its names.
//!
//! Stage: output.

use crate::join::{LocationId, Module};
use crate::text;

/// One function of a call stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackFrame<'a> {
    /// The location of its code; inlined functions share one.
    pub(super) location: LocationId,
    /// Its name, if it is known.
    pub(super) function: Option<&'a str>,
    /// The file that holds its code, if there is one.
    pub(super) module: Option<&'a Module>,
    /// The offset in that file, or the bare address.
    pub(super) address: u64,
    /// Its source file, if it is known.
    pub(super) file: Option<&'a str>,
    /// The source line, 0 if unknown.
    pub(super) line: u32,
    /// Whether it was inlined into the next one.
    pub(super) inlined: bool,
}

impl StackFrame<'_> {
    /// The function's name, or its position: `[libfoo.so+0x1234]`. Safe to print.
    pub(super) fn label(&self) -> String {
        match (self.function, self.module) {
            (Some(function), _) => text::escape(function).into_owned(),
            (None, Some(module)) => {
                let name = text::escape(module.name());
                format!("[{name}+{:#x}]", self.address)
            }
            (None, None) => format!("[{:#x}]", self.address),
        }
    }
}
