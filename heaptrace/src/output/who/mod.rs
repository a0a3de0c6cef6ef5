//! Who owns an address: the block that holds it, the blocks that were there before, and its neighbours.
//!
//! Stage: output. Formats show what is found here, and add nothing.

mod find;
mod json;

pub use find::{AskedAddress, CoreFacts, Owned, Owner, Place, Who, find};
pub use json::write_who_json;
