//! CPython: finds the interpreter in a file, and decodes what the kernel program sends about Python's code.
//!
//! No stage: every stage may import this folder. The unwind stage looks for an interpreter in each file whose table it builds.
//! The join stage turns positions in bytecode into lines. Files, line tables and strings are untrusted. Must not know
//! processes, stacks nor kernel maps.

mod cold;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod image;
mod layouts;
mod lines;
mod text;

pub use image::{Frames, IMAGE_WORDS, find, from_words, is_in, is_sound, to_words};
pub use layouts::layout;
pub use lines::line;
pub use text::text;

#[cfg(test)]
mod tests;
