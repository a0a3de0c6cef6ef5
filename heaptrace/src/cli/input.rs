//! Reads a data file for an offline command: its profile, its names and its warnings.
//!
//! Part of the command line. Must not know what the command shows.

use std::process::ExitCode;

use super::destination::Output;
use super::invocation::Input;
use super::message;
use super::offline::{self, Opened, Read};
use crate::output::{self, Filter, Grouping, ReportInput, ShownLanguages, Wrappers};
use crate::profile::{History, Profile, Symbols};
use crate::symbolize::DebugSources;

/// The content of a data file.
pub(super) struct Loaded {
    pub(super) profile: Profile,
    /// The history of each site, if it was asked for.
    pub(super) history: History,
    symbols: Symbols,
    warnings: Vec<String>,
    is_damaged: bool,
    filters: Vec<Filter>,
    /// How sites are grouped.
    pub(super) grouping: Option<Grouping>,
    /// The functions that are not shown as the ones that allocate.
    pub(super) wrappers: Wrappers,
    /// The languages whose frames are shown.
    shown: ShownLanguages,
    full_names: bool,
}

/// The exit code of a command that showed the readable part of a file.
pub(super) fn exit_code(is_damaged: bool) -> ExitCode {
    if is_damaged {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Reads a data file, and applies the filters.
///
/// If the recorder was killed, the file has no names; then they are looked up in the files of this machine.
pub(super) fn load(input: &Input, to: Option<&Output>) -> anyhow::Result<Loaded> {
    let read = offline::open(input, DebugSources::in_folders(&[]))?.read(to)?;
    Ok(loaded(input, read))
}

/// Reads two data files for an output, and applies the filters of each.
pub(super) fn load_both(inputs: [&Input; 2], to: &Output) -> anyhow::Result<[Loaded; 2]> {
    let open = |input| offline::open(input, DebugSources::in_folders(&[]));
    let [old, new] = inputs;
    let [of_old, of_new] = Opened::read_both([open(old)?, open(new)?], Some(to))?;
    Ok([loaded(old, of_old), loaded(new, of_new)])
}

fn loaded(input: &Input, read: Read) -> Loaded {
    let (recording, symbols) = read.named();
    let mut warnings = recording.warnings;
    if input.filters.iter().any(Filter::is_of_process) && !output::has_own_peaks(&recording.profile)
    {
        warnings.push(
            "the file is from an older version, and has no peaks of single processes: bytes at the peak are those \
             at the peak of the run"
                .to_owned(),
        );
    }
    let profile = output::select(recording.profile, &symbols, &input.filters);
    if profile.sites.is_empty() && !input.filters.is_empty() {
        let filters: Vec<_> = input.filters.iter().map(ToString::to_string).collect();
        warnings.push(format!("nothing matches {}", filters.join(" and ")));
    }
    Loaded {
        profile,
        history: recording.history.unwrap_or_default(),
        symbols,
        warnings,
        is_damaged: recording.is_damaged,
        filters: input.filters.clone(),
        grouping: None,
        wrappers: Wrappers::default(),
        shown: input.shown,
        full_names: input.full_names,
    }
}

impl Loaded {
    /// The input of the outputs.
    pub(super) fn report_input(&self) -> ReportInput<'_> {
        ReportInput {
            profile: &self.profile,
            symbols: &self.symbols,
            warnings: &self.warnings,
            filters: &self.filters,
            grouping: self.grouping,
            wrappers: &self.wrappers,
            shown: self.shown,
            full_names: self.full_names,
        }
    }

    /// The exit code of a command that showed all of it. It tells scripts whether the file was damaged.
    pub(super) fn exit_code(&self) -> ExitCode {
        exit_code(self.is_damaged)
    }

    /// Whether the file was damaged, so that a part is missing.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Prints the warnings on standard error.
    pub(super) fn warn(&self) {
        for warning in &self.warnings {
            message::warn(warning);
        }
    }
}
