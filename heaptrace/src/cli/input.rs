//! A data file, read and with names, as every offline command wants it.
//!
//! Part of the command line, no stage of the flow.

use std::process::ExitCode;

use super::destination::Output;
use super::{Input, message, offline};
use crate::output::{self, Filter, Grouping, ReportInput};
use crate::profile::{Profile, Symbols};

/// What a data file holds.
pub(super) struct Loaded {
    pub(super) profile: Profile,
    symbols: Symbols,
    warnings: Vec<String>,
    is_damaged: bool,
    filters: Vec<Filter>,
    /// What sites are put together by.
    pub(super) grouping: Option<Grouping>,
}

/// The exit code of a command that showed what could be read.
pub(super) fn exit_code(is_damaged: bool) -> ExitCode {
    if is_damaged {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Reads a data file, and leaves of it what is asked for.
///
/// A recorder that was killed had no time to look up names: then this machine's files give them.
pub(super) fn load(input: &Input, to: Option<&Output>) -> anyhow::Result<Loaded> {
    let (recording, symbols) = offline::open(input)?.read(to)?.named();
    let mut warnings = recording.warnings;
    let profile = output::select(recording.profile, &symbols, &input.filters);
    if profile.sites.is_empty() && !input.filters.is_empty() {
        let filters: Vec<_> = input.filters.iter().map(ToString::to_string).collect();
        warnings.push(format!("nothing fits {}", filters.join(" and ")));
    }
    Ok(Loaded {
        profile,
        symbols,
        warnings,
        is_damaged: recording.is_damaged,
        filters: input.filters.clone(),
        grouping: None,
    })
}

impl Loaded {
    /// What the outputs read.
    pub(super) fn findings(&self) -> ReportInput<'_> {
        ReportInput {
            profile: &self.profile,
            symbols: &self.symbols,
            warnings: &self.warnings,
            filters: &self.filters,
            grouping: self.grouping,
        }
    }

    /// The exit code of a command that showed all of it: a program must not take a damaged file for a whole one.
    pub(super) fn exit_code(&self) -> ExitCode {
        exit_code(self.is_damaged)
    }

    /// Says on standard error what limits the worth of an output.
    pub(super) fn warn(&self) {
        for warning in &self.warnings {
            message::warn(warning);
        }
    }
}
