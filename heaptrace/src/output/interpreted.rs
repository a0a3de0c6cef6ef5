//! Which frames of a stack are an interpreter at work for the function that it runs.
//!
//! Stage: output. `list_append` of Python allocates for the line that appends, so a stack is shown and counted under that line. Code
//! outside of the interpreter's file is an extension, or a library: it allocates on its own account.

use super::frame::StackFrame;
use crate::join::{Language, Module};

/// The interpreter of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interpreted<'a> {
    /// The index of the outermost frame that the interpreter runs. Frames further out have started the interpreter.
    outermost: usize,
    /// The file with the interpreter's code, if it is known.
    by: Option<&'a Module>,
}

impl<'a> Interpreted<'a> {
    /// The interpreter in these frames, innermost first, whose code is in this file; `None` if it runs none of them.
    pub(super) fn of(frames: &[StackFrame<'_>], by: Option<&'a Module>) -> Option<Self> {
        let is_run = |it: &StackFrame<'_>| it.language.is_some_and(Language::is_interpreted);
        let outermost = frames.iter().rposition(is_run)?;
        Some(Self { outermost, by })
    }

    /// Whether the frame at an index is the interpreter's code, for a frame that it runs.
    pub(super) fn has(&self, at: usize, frame: &StackFrame<'_>) -> bool {
        at <= self.outermost && self.is_its_code(frame)
    }

    /// Whether a frame is the interpreter's code, also if it is where the interpreter was started.
    pub(super) fn is_its_code(&self, frame: &StackFrame<'_>) -> bool {
        if frame.language.is_some() {
            return false;
        }
        match frame.module {
            Some(module) => self.by.is_some_and(|by| std::ptr::eq(by, module)),
            // Code that was made at run time, and has no name: it says less than the function that called it.
            None => frame.function.is_none(),
        }
    }
}
