//! V8: finds it in a file, and reads what functions of JavaScript are from the memory of a process.
//!
//! No stage: every stage may import this folder. The unwind stage looks for V8 in each file whose table it builds. The join stage
//! asks for the functions of frames. Files and memory are untrusted. Must not know processes, stacks nor kernel maps.

mod ask;
mod bytecodes;
mod frames;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod heap;
mod image;
#[cfg(any(test, feature = "images"))]
mod images;
mod layouts;
mod lines;
mod names;
mod places;
mod positions;

pub use ask::{answer, version_in};
pub use frames::{FrameWords, frame};
pub use heap::Memory;
pub use image::{IMAGE_WORDS, find, from_words, is_in, is_sound, to_words};
#[cfg(feature = "images")]
pub use images::record;
pub use layouts::{Layout, layout};
pub use lines::Lines;
pub use names::{Found, Named, Script, function, lines_of, shared};
pub use places::{At, places};

#[cfg(test)]
mod tests;
