//! `heaptrace placements`, a hidden command: lists the probe locations in the functions of files.
//!
//! Part of the command line, for benchmarks and tests. Prints a line for each function, with tabs between
//! fields. Selects functions by their names alone, whatever the file is.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::probes::allocators;
use crate::reader::{Budget, Limits, Reader};
use crate::text;

pub(super) fn run(files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "file\tfunctions\tentry\toffset\tinstruction\tstepped\twhy"
    )?;
    let mut reader = Reader::new(&Budget::default(), Limits::default());
    for path in files {
        write(&mut out, &mut reader, path)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write(out: &mut impl io::Write, reader: &mut Reader, path: &Path) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let found = allocators::of_file(reader, path).with_context(|| name.clone())?;
    let allocator = found.allocators.into_iter().next();
    let allocator = allocator.with_context(|| format!("{name} has no function of an allocator"))?;
    for place in &allocator.functions {
        writeln!(
            out,
            "{}\t{}\t{:#x}\t{}\t{}\t{}\t{}",
            text::escape(&allocator.path),
            place.names.join("/"),
            place.offset,
            place.placed.offset,
            place.placed.instruction,
            place.placed.is_stepped,
            place.placed.reason,
        )?;
    }
    Ok(())
}
