//! `heaptrace names`, a hidden command: prints the functions at offsets of a file, as the end of a run finds them.
//!
//! Part of the command line, for benchmarks. Reads hexadecimal offsets in the file from standard input, one a line. Prints a line for each
//! function, innermost first, with its file and line behind a tab, and an empty line behind each offset. Must not know how a name is found.

use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use super::naming;
use crate::join::{Location, LocationId, Module, ModuleId};
use crate::profile::{Mode, Profile, RunInfo, SizeRange};
use crate::symbolize::{DebugSources, OnDisk};
use crate::text::escape;

pub(super) fn run(file: &Path) -> anyhow::Result<ExitCode> {
    let path = file.canonicalize();
    let path = path.with_context(|| format!("cannot find {}", file.display()))?;
    let mut profile = Profile::new(RunInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: Mode::Exact,
        sizes: SizeRange::ALL,
        started_unix_ns: 0,
        target: String::new(),
        kernel: String::new(),
    });
    profile.modules.push(Module {
        path: path.display().to_string(),
        ..Module::default()
    });
    for line in io::stdin().lines() {
        let line = line.context("cannot read offsets")?;
        let digits = line.trim().trim_start_matches("0x");
        let address = u64::from_str_radix(digits, 16);
        profile.locations.push(Location {
            module: Some(ModuleId(0)),
            address: address.with_context(|| format!("`{line}` is no hexadecimal offset"))?,
            function: None,
        });
    }
    let symbols = naming::all(&profile, &OnDisk::default(), DebugSources::in_folders(&[]));
    let mut out = BufWriter::new(io::stdout().lock());
    for (id, _) in (0_u32..).zip(&profile.locations) {
        for frame in symbols.frames(LocationId(id)) {
            let text = |id| escape(symbols.text(id));
            let function = frame.function.map_or_else(|| "??".into(), text);
            let file = frame.file.map_or_else(|| "??".into(), text);
            writeln!(out, "{function}\t{file}:{}", frame.line)?;
        }
        writeln!(out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
