//! `heaptrace symbolize`: adds the names that this machine's files have to a data file.
//!
//! Part of the command line. Only names change: everything else in the file is copied byte by byte. Must not know how a name is
//! found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;

use super::destination::{Output, To};
use super::invocation::Input;
use super::{debuginfod, message, offline};
use crate::join::{LocationId, ModuleId};
use crate::output::OutputError;
use crate::profile::{Improvement, Profile, Symbols};
use crate::symbolize::DebugSources;

/// Most files that are named as those without names.
const MOST_NAMED: usize = 10;

/// Adds names to a data file, or writes a copy with them.
pub(super) fn run(
    input: &Input,
    output: Option<&Path>,
    force: bool,
    debug_dirs: &[PathBuf],
) -> anyhow::Result<ExitCode> {
    let path = output.unwrap_or(&input.file);
    let to = Output::open(&To::new(path, force))?;
    let sources = DebugSources {
        debuginfod: debuginfod::servers(),
        ..DebugSources::in_folders(debug_dirs)
    };
    let read = offline::open(input, sources)?.read(Some(&to))?;
    for warning in &read.recording.warnings {
        message::warn(warning);
    }
    if read.recording.is_damaged {
        bail!("no names are added to a damaged file; the reports show what can be read of it");
    }
    let (recording, found, file) = read.looked_up()?;
    let mut symbols = recording.symbols.unwrap_or_default();
    let improvement = symbols.improve(&found);
    to.write(|out| {
        file.copy_with_names(&symbols, out)
            .map_err(OutputError::from)
    })?;
    for line in summary(&recording.profile, &symbols, improvement) {
        message::note(line);
    }
    Ok(ExitCode::SUCCESS)
}

/// What was found, and which files still lack names.
fn summary(profile: &Profile, symbols: &Symbols, improvement: Improvement) -> Vec<String> {
    let machine_code = || {
        let all = (0_u32..).map(LocationId).zip(&profile.locations);
        all.filter(|(_, location)| location.function.is_none())
    };
    let is_named = |id| symbols.frames(id).iter().any(|it| it.function.is_some());
    let named = machine_code().filter(|(id, _)| is_named(*id)).count();
    let mut lines = vec![format!(
        "{named} of {} addresses have names, {} of them since now; {} have source lines since now",
        machine_code().count(),
        improvement.functions,
        improvement.lines
    )];
    if improvement.inlined > 0 {
        let inlined = improvement.inlined;
        lines.push(format!(
            "{inlined} addresses have more inlined functions since now"
        ));
    }
    if improvement.types > 0 {
        lines.push(format!(
            "the blocks of {} stacks have a type since now",
            improvement.types
        ));
    }
    let mut unnamed = BTreeMap::<ModuleId, usize>::new();
    for (id, location) in machine_code() {
        if let Some(module) = location.module.filter(|_| !is_named(id)) {
            *unnamed.entry(module).or_default() += 1;
        }
    }
    let mut unnamed: Vec<_> = unnamed.into_iter().collect();
    unnamed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let modules = |id: &ModuleId| profile.modules.get(id.0 as usize);
    for (id, count) in unnamed.iter().take(MOST_NAMED) {
        let Some(module) = modules(id) else { continue };
        let build_id: String = module
            .build_id
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect();
        lines.push(format!(
            "no names for {count} addresses of {}{}",
            module.path,
            if build_id.is_empty() {
                ", which has no build id".to_owned()
            } else {
                format!(" (build id {build_id})")
            }
        ));
    }
    if unnamed.len() > MOST_NAMED {
        lines.push(format!(
            "{} more files have addresses without names",
            unnamed.len() - MOST_NAMED
        ));
    }
    lines
}
