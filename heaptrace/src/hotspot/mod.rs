//! HotSpot, the Java virtual machine: finds its description of itself in a file, and reads where a process has its code, and the
//! names of that code.
//!
//! No stage: every stage may import this folder. The file is parsed by the reader. The memory of a process is read by the tracer,
//! through a trait, and decoded as what it is: untrusted. Must not know stacks nor kernel maps.

#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod image;
#[cfg(any(test, feature = "images"))]
mod images;
mod layout;
mod lines;
mod machine;
mod memory;
mod method;
mod names;
mod packed;
mod scopes;
mod structs;
#[cfg(test)]
mod tests;

pub use image::{Image, answer, find, image};
#[cfg(feature = "images")]
pub use images::record;
pub use machine::{Machine, NotDescribed, describe};
pub use memory::Memory;
pub use names::{Frame, Named, Names};
