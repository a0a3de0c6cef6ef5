//! The listing of source files: each line with the memory that is allocated there.
//!
//! Stage: output. Opens no file: the caller brings the text. Must not know where that comes from.

mod lines;
mod listing;

pub use lines::{SourceFile, SourceLine, source_files};
pub use listing::{SourceText, write_source};
