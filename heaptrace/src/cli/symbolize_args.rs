//! The options of `heaptrace symbolize`.
//!
//! Part of the command line. Must not know how names are looked up.

use std::path::PathBuf;

use clap::Args;

use super::input_args::Written;
use super::invocation::{Action, Filters, Input};
use super::values;
use crate::output::ShownLanguages;

#[derive(Debug, Args)]
pub(super) struct Symbolize {
    /// The data file to add names to
    #[arg(value_name = "FILE", default_value = "heaptrace.data")]
    file: PathBuf,
    /// Write a copy with names, and leave FILE as it is; - for standard output [default: change FILE]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    written: Written,
    /// Search for debug files in this folder, too, before /usr/lib/debug.
    ///
    /// As there, they are found by build id (FOLDER/.build-id/ab/cdef.debug) or by name. A file counts only if it has the build id of the
    /// file that was traced. May be given several times.
    #[arg(long, value_name = "FOLDER", value_parser = values::folder)]
    debug_dir: Vec<PathBuf>,
    /// Most memory for the content of the file [default: 256MiB, and 256 bytes for each byte of the file]
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    max_memory: Option<u64>,
}

impl From<Symbolize> for Action {
    fn from(symbolize: Symbolize) -> Self {
        Self::Symbolize {
            input: Input {
                file: symbolize.file,
                at: None,
                from: None,
                since_mark: None,
                filters: Filters::default(),
                shown: ShownLanguages::default(),
                full_names: false,
                max_memory: symbolize.max_memory,
                with_history: false,
            },
            output: symbolize.output,
            force: symbolize.written.force,
            debug_dirs: symbolize.debug_dir,
        }
    }
}
