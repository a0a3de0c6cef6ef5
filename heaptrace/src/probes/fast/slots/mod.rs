//! The slots through which a file calls allocator functions.
//!
//! Stage: probes. The dynamic linker fills these slots with addresses of functions. A slot that is only called may lead to
//! other code that does the same. A slot that is also read may not: programs compare function pointers. ELF files of traced
//! processes may contain anything, so a reader parses them (`linkage.rs`, `references.rs`), and `ask.rs` sends it questions. Calls
//! by a slot that is also read mostly pass through a linkage stub (`stubs.rs`), which can lead elsewhere. Must not know how
//! slots and stubs are changed.

mod answer;
mod ask;
mod elf;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod libraries;
mod linkage;
mod references;
mod stubs;
#[cfg(test)]
mod tests;

pub use answer::{JUMP_BYTES, Part, SlotOf, Slots, StubIn, StubOf};
pub use ask::slots_of;
pub(crate) use linkage::answer;
