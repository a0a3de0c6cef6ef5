//! The listing of source files: each line with the memory that is allocated there.
//!
//! Stage: output. Opens no file: the caller brings the text. Must not know where that comes from.

mod files;
mod json;
mod lines;
mod listing;

pub use files::{SourceFiles, SourceText};
pub use json::write_source_json;
pub use lines::{SourceChoice, SourceFile, SourceLine, source_files};
pub use listing::write_source;
