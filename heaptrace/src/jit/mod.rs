//! Names of code that runtimes generate: reads perf maps and jitdump files, and keeps the names by address.
//!
//! No stage: every stage may import this folder. A runtime such as Node, Java or .NET writes these files for `perf`. They can
//! contain anything, so a reader parses them, a piece at a time, and the tracer checks its answers. Must not know processes nor
//! stacks.

mod answer;
mod ask;
mod code_map;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod jitdump;
mod message;
mod name;
mod perf_map;

pub(crate) use answer::answer;
pub use ask::read_piece;
pub use code_map::{CodeMap, Loaded, Named, Room};
pub use message::{Change, Code, Format, Piece, Position};

/// Whether a mapped file with this path is a jitdump file: a runtime maps it as code to announce it.
pub fn is_jitdump(path: &str) -> bool {
    let name = crate::text::file_name(path);
    name.starts_with("jit-") && name.ends_with(".dump")
}
