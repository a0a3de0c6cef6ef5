//! Prints a program in its language.
//!
//! Part of differential. It must not know how a source is built.

use super::program::{Language, Program};
use super::source::Source;
use super::{source_c, source_rust};

/// Prints a program.
pub(super) fn print(program: &Program) -> Source {
    match program.language {
        Language::Rust => source_rust::print(program),
        language => source_c::print(program, language == Language::Cpp),
    }
}
