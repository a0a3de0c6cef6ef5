//! The types of the blocks of a run, each with its memory, its elements, and where it is made: `heaptrace types`.
//!
//! Stage: output. Formats show what is found here, and add nothing.

mod json;
mod rows;

pub use json::write_types_json;
pub(super) use rows::TypeRow;
pub use rows::{TypesFound, find};
