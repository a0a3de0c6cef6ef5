//! `heaptrace names`, a hidden command: prints the functions at offsets of a file, as the end of a run finds them.
//!
//! Part of the command line, for benchmarks. Reads hexadecimal offsets in the file from standard input, one a line. Prints a line for each
//! function, innermost first, with its file and line behind a tab, and an empty line behind each offset. With `--types`, prints a line for each
//! offset instead: the type of what is allocated there, as if it were a whole stack, and the way behind a tab. Must not know how a name is found.

use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use super::naming;
use crate::join::{
    Completeness, Location, LocationId, Module, ModuleId, ProcessId, Site, SiteId, Stack, StackId,
};
use crate::profile::{Mode, Profile, RunInfo, SizeRange, Symbols};
use crate::reader::Budget;
use crate::symbolize::{DebugSources, OnDisk};
use crate::text::escape;
use crate::types::find_types;

pub(super) fn run(file: &Path, wants_types: bool) -> anyhow::Result<ExitCode> {
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
    if wants_types {
        return print_types(profile);
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

/// Prints the type at each location.
fn print_types(mut profile: Profile) -> anyhow::Result<ExitCode> {
    for id in (0_u32..).take(profile.locations.len()) {
        profile.stacks.push(Stack {
            locations: vec![LocationId(id)],
            completeness: Completeness::Complete,
        });
        profile
            .sites
            .push(Site::of_heap(ProcessId(0), StackId(id), SiteId(id)));
    }
    let (files, sources) = (OnDisk::default(), DebugSources::in_folders(&[]));
    let names = Symbols::default();
    let types = find_types(&profile, &names, &files, sources, &Budget::default());
    let mut out = BufWriter::new(io::stdout().lock());
    for id in (0_u32..).take(profile.stacks.len()) {
        match types.of(StackId(id)) {
            Some(found) => writeln!(out, "{}\t{}", escape(&found.name), found.way.name())?,
            None => writeln!(out, "??\t??")?,
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
