//! Reads a data file for an offline command: its profile, its names and its warnings.
//!
//! Part of the command line. Must not know what the command shows.

use std::process::ExitCode;

use anyhow::anyhow;

use super::destination::Output;
use super::invocation::Input;
use super::offline::{self, Opened, Read};
use super::{chosen_blocks, filters, message};
use crate::join::Mark;
use crate::output::{
    self, ChosenBlocks, Filter, Grouping, Metric, ReportInput, ShownLanguages, Wrappers,
};
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
    /// What is known of single blocks, if the filters chose some.
    chosen_blocks: Option<ChosenBlocks>,
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
    let read = open(input, &filters)?.read(to)?;
    loaded(input, filters, read)
}

/// Opens a data file, from which the sums of blocks are read that filters ask for.
fn open(input: &Input, filters: &[Filter]) -> anyhow::Result<Opened> {
    let opened = offline::open(input, DebugSources::in_folders(&[]))?;
    Ok(match chosen_blocks::wanted(filters)? {
        Some(wanted) => opened.with_blocks(wanted),
        None => opened,
    })
}

/// The same, with a history of at most so many periods.
pub(super) fn load_with_periods(
    input: &Input,
    periods: usize,
    to: Option<&Output>,
) -> anyhow::Result<Loaded> {
    let filters = filters::read(&input.filters)?;
    chosen_blocks::refuse(
        &filters,
        "a timeline shows sums of all blocks at each time",
        "`heaptrace report --at TIME` shows single blocks of a recording with --blocks at a moment",
    )?;
    let opened = offline::open(input, DebugSources::in_folders(&[]))?;
    let read = opened.with_periods(periods).read(to)?;
    loaded(input, filters, read)
}

/// The same as [`load`], with single blocks and the memory of processes.
pub(super) fn load_with_memory(input: &Input, to: Option<&Output>) -> anyhow::Result<Loaded> {
    let filters = filters::read(&input.filters)?;
    chosen_blocks::refuse(
        &filters,
        "a map shows all blocks of a stack, which keep the same pages",
        "`heaptrace report` shows single blocks, and `heaptrace map --color-by age` their age",
    )?;
    let opened = offline::open(input, DebugSources::in_folders(&[]))?;
    let wanted = WantedBlocks::default().with_memory();
    let read = opened.with_blocks(wanted).read(to)?;
    loaded(input, filters, read)
}

/// Reads two data files for an output, and applies the filters of the first to both.
pub(super) fn load_both(inputs: [&Input; 2], to: &Output) -> anyhow::Result<[Loaded; 2]> {
    let [old, new] = inputs;
    let filters = filters::read(&old.filters)?;
    let both = [open(old, &filters)?, open(new, &filters)?];
    let [mut of_old, mut of_new] = Opened::read_both(both, Some(to))?;
    let has_blocks = |it: &Read| it.recording.blocks.is_some();
    let needs_blocks = filters.iter().any(Filter::needs_blocks);
    let both_have = has_blocks(&of_old) && has_blocks(&of_new);
    if !needs_blocks && !both_have {
        // Sizes of single blocks can't be compared with mean ones.
        (of_old.recording.blocks, of_new.recording.blocks) = (None, None);
    }
    Ok([
        loaded(old, filters.clone(), of_old)?,
        loaded(new, filters, of_new)?,
    ])
}

fn loaded(input: &Input, filters: Vec<Filter>, read: Read) -> anyhow::Result<Loaded> {
    let (mut recording, symbols) = read.named();
    let chosen_blocks = chosen_blocks::chosen(input, &filters, &recording)?;
    if let Some(blocks) = &mut recording.blocks
        && chosen_blocks.is_some_and(|it| !it.has_freed)
    {
        blocks.forget_freed();
    }
    let mut warnings = std::mem::take(&mut recording.warnings);
    warnings.extend(
        chosen_blocks
            .iter()
            .flat_map(|it| chosen_blocks::warnings(*it, &recording)),
    );
    if chosen_blocks.is_none()
        && filters.iter().any(Filter::selects_processes)
        && !output::has_own_peaks(&recording.profile)
    {
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
    let blocks = recording
        .blocks
        .as_ref()
        .filter(|_| chosen_blocks.is_some());
    let profile = output::select_with_history(profile, &mut history, &symbols, &filters, blocks);
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
        chosen_blocks,
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

    /// Whether its filters chose single blocks.
    pub(super) fn has_chosen_blocks(&self) -> bool {
        self.chosen_blocks.is_some()
    }

    /// Fails if it does not know a metric that the user chose.
    pub(super) fn check(&self, metric: Option<Metric>) -> anyhow::Result<()> {
        chosen_blocks::check(self.chosen_blocks, metric)
    }

    /// The input of the outputs.
    pub(super) fn report_input(&self) -> ReportInput<'_> {
        ReportInput {
            profile: &self.profile,
            symbols: &self.symbols,
            warnings: &self.warnings,
            filters: &self.filters,
            since: self.since,
            chosen_blocks: self.chosen_blocks,
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
