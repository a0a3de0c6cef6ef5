//! Finds the blocks of a process that nothing points to, by a look at its memory while it is stopped.
//!
//! No stage: imports only `proc`, `ptrace` and `sys`. Only words that may be addresses are kept of what is read, and nothing is decoded: a word in
//! memory that is reached counts as a pointer to the block that holds it. Must not know who allocated a block.

mod block_index;
mod copy;
mod pages;
mod places;
mod reading;
mod search;
mod stop;
#[cfg(test)]
mod tests;
mod words;

pub use block_index::LiveBlock;
pub use reading::{Prepared, Reading};
pub use search::{Found, KnownBlocks, Unreached};
pub use stop::Refusal;
