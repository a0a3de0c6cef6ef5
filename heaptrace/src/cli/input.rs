//! Reads a data file for an offline command: its profile, its names and its warnings.
//!
//! Part of the command line. Must not know what the command shows.

use std::process::ExitCode;

use anyhow::anyhow;

use super::destination::Output;
use super::invocation::Input;
use super::offline::{self, Opened, Read};
use super::{filters, message};
use crate::join::Mark;
use crate::output::{self, Filter, Grouping, ReportInput, ShownLanguages, Wrappers};
use crate::profile::{BlockList, History, Profile, Snapshot, Symbols, WantedBlocks};
use crate::symbolize::DebugSources;
use crate::text;

/// The content of a data file.
pub(super) struct Loaded {
    pub(super) profile: Profile,
    /// The history of each site, if it was asked for.
    pub(super) history: History,
    /// The totals of the whole run at each update.
    pub(super) snapshots: Vec<Snapshot>,
    /// Its blocks one by one, if they were asked for and the file has any.
    pub(super) blocks: Option<BlockList>,
    symbols: Symbols,
    warnings: Vec<String>,
    is_damaged: bool,
    filters: Vec<Filter>,
    /// The mark since which everything was allocated that the profile has.
    since: Option<Mark>,
    /// How sites are grouped.
    pub(super) grouping: Option<Grouping>,
    /// The functions that are not shown as the ones that allocate.
    pub(super) wrappers: Wrappers,
    /// The languages whose frames are shown.
    shown: ShownLanguages,
    full_names: bool,
    /// Whether stacks have the type of the block as their innermost frame.
    pub(super) with_types: bool,
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
    let filters = filters::read(&input.filters)?;
    let read = offline::open(input, DebugSources::in_folders(&[]))?.read(to)?;
    loaded(input, filters, read)
}

/// The same, with a history of at most so many periods.
pub(super) fn load_with_periods(
    input: &Input,
    periods: usize,
    to: Option<&Output>,
) -> anyhow::Result<Loaded> {
    let filters = filters::read(&input.filters)?;
    let opened = offline::open(input, DebugSources::in_folders(&[]))?;
    let read = opened.with_periods(periods).read(to)?;
    loaded(input, filters, read)
}

/// The same as [`load`], with single blocks and the memory of processes.
pub(super) fn load_with_memory(input: &Input, to: Option<&Output>) -> anyhow::Result<Loaded> {
    let filters = filters::read(&input.filters)?;
    let opened = offline::open(input, DebugSources::in_folders(&[]))?;
    let wanted = WantedBlocks::default().with_memory();
    let read = opened.with_blocks(wanted).read(to)?;
    loaded(input, filters, read)
}

/// Reads two data files for an output, and applies the filters of the first to both.
pub(super) fn load_both(inputs: [&Input; 2], to: &Output) -> anyhow::Result<[Loaded; 2]> {
    let open = |input| offline::open(input, DebugSources::in_folders(&[]));
    let [old, new] = inputs;
    let filters = filters::read(&old.filters)?;
    let [of_old, of_new] = Opened::read_both([open(old)?, open(new)?], Some(to))?;
    Ok([
        loaded(old, filters.clone(), of_old)?,
        loaded(new, filters, of_new)?,
    ])
}

fn loaded(input: &Input, filters: Vec<Filter>, read: Read) -> anyhow::Result<Loaded> {
    let (recording, symbols) = read.named();
    let mut warnings = recording.warnings;
    if filters.iter().any(Filter::selects_processes) && !output::has_own_peaks(&recording.profile) {
        warnings.push(
            "the file is from an older version, and has no peaks of single processes: bytes at the peak are those \
             at the peak of the run"
                .to_owned(),
        );
    }
    if filters.iter().any(Filter::is_of_threads) && recording.profile.threads.is_empty() {
        warnings.push(
            "the file has no names of threads, so no condition on them holds: record them with `heaptrace record --threads`"
                .to_owned(),
        );
    }
    let since = input
        .since_mark
        .map(|wanted| wanted.find(&recording.profile.marks))
        .transpose()
        .map_err(|why| anyhow!("{}: {why}", text::escape(&input.file.to_string_lossy())))?;
    let profile = match since {
        Some(mark) => output::since_mark(recording.profile, mark.number),
        None => recording.profile,
    };
    let mut history = recording.history.unwrap_or_default();
    let profile = output::select_with_history(profile, &mut history, &symbols, &filters);
    if profile.sites.is_empty() && !filters.is_empty() {
        warnings.push(format!("nothing matches {}", output::together(&filters)));
    }
    Ok(Loaded {
        profile,
        history,
        snapshots: recording.snapshots,
        blocks: recording.blocks,
        symbols,
        warnings,
        is_damaged: recording.is_damaged,
        filters,
        since,
        grouping: None,
        wrappers: Wrappers::default(),
        shown: input.shown,
        full_names: input.full_names,
        with_types: false,
    })
}

impl Loaded {
    /// Whether it has only what was allocated since a mark.
    pub(super) fn has_mark(&self) -> bool {
        self.since.is_some()
    }

    /// The input of the outputs.
    pub(super) fn report_input(&self) -> ReportInput<'_> {
        ReportInput {
            profile: &self.profile,
            symbols: &self.symbols,
            warnings: &self.warnings,
            filters: &self.filters,
            since: self.since,
            grouping: self.grouping,
            wrappers: &self.wrappers,
            shown: self.shown,
            full_names: self.full_names,
            with_types: self.with_types,
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
