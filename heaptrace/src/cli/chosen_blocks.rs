//! Filters on single blocks: whether a file can answer them, and what to do if not.
//!
//! Part of the command line. Must not know how blocks are chosen: the output stage does.

use anyhow::{bail, ensure};

use super::invocation::Input;
use crate::output::{ChosenBlocks, Filter, Metric};
use crate::profile::{BlockCondition, Recording, WantedBlocks};
use crate::text;

/// The sums of blocks that filters ask for; `None` if they ask nothing of single blocks.
pub(super) fn wanted(filters: &[Filter]) -> anyhow::Result<Option<WantedBlocks>> {
    let mut conditions: Vec<BlockCondition> = Vec::new();
    for condition in filters.iter().flat_map(Filter::block_conditions) {
        if !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    ensure!(
        conditions.len() <= BlockCondition::MOST,
        "--filter: there are more than {} conditions on age, time and size; use fewer",
        BlockCondition::MOST
    );
    Ok((!conditions.is_empty()).then(|| WantedBlocks::classes(conditions)))
}

/// Fails if filters ask of a run that is shown what only a file with single blocks can tell.
pub(super) fn refuse_in_runs(filters: &[Filter]) -> anyhow::Result<()> {
    refuse(
        filters,
        "a run has only sums while it is shown",
        "record it with `heaptrace record --blocks`, and give the filter to `heaptrace report`. The key n of the table shows what is \
         younger than the last mark (key m)",
    )
}

/// Fails if filters ask what only a file with single blocks can tell.
pub(super) fn refuse(filters: &[Filter], command: &str, instead: &str) -> anyhow::Result<()> {
    match filters.iter().find(|it| it.needs_blocks()) {
        Some(filter) => {
            bail!(
                "`{filter}` is about the age or the time of single blocks, but {command}; {instead}"
            )
        }
        None => Ok(()),
    }
}

/// What a recording knows of the blocks that filters choose; `None` if it has no single blocks, and the filters can do without.
pub(super) fn chosen(
    input: &Input,
    filters: &[Filter],
    recording: &Recording,
) -> anyhow::Result<Option<ChosenBlocks>> {
    let file = input.file.to_string_lossy();
    let file = text::escape(&file);
    let needing = filters.iter().find(|it| it.needs_blocks());
    let blocks = recording
        .blocks
        .as_ref()
        .filter(|it| !it.conditions.is_empty());
    let (blocks, filter) = match (blocks, needing) {
        (Some(blocks), filter) => (blocks, filter),
        (None, None) => return Ok(None),
        (None, Some(filter)) => bail!(
            "{file} has no single blocks, so it can't tell which ones match `{filter}`: record with `heaptrace record --blocks`, or \
             with --events to know of freed blocks, too. Without them, --since-mark shows what is younger than a mark, and \
             --from and --to a part of the run"
        ),
    };
    match (input.since_mark, filter) {
        (None, _) => {}
        // The sizes of a generation are means.
        (Some(_), None) => return Ok(None),
        (Some(_), Some(filter)) => bail!(
            "--since-mark can't be used with `{filter}`; use time>=TIME with the time of the mark, which `heaptrace leaks` lists"
        ),
    }
    // What was freed before the range is among the freed blocks, too, and what was freed before the file began is not.
    let is_whole = recording.profile.range.is_none() && blocks.began_ns.is_none();
    let has_freed = blocks.has_all && is_whole;
    Ok(Some(ChosenBlocks { has_freed }))
}

/// What to know of the chosen blocks.
pub(super) fn warnings(chosen: ChosenBlocks, recording: &Recording) -> Vec<String> {
    let mut warnings = Vec::new();
    let blocks = recording.blocks.as_ref();
    let began_ns = blocks.and_then(|it| it.began_ns);
    if !chosen.has_freed {
        let why = match blocks.is_some_and(|it| it.has_all) {
            true if began_ns.is_some() => "in a file that begins later than its run",
            true => "in a part of a run",
            false => "without `record --events`",
        };
        warnings.push(format!(
            "the filter chooses single blocks: {why}, only those that were not freed are known, so there are no totals and peaks"
        ));
    }
    if let Some(began_ns) = began_ns {
        warnings.push(format!(
            "this file begins {} into the run: what processes had left that ended before is in the files before it, and is not chosen here",
            text::duration(began_ns)
        ));
    }
    if recording
        .profile
        .processes
        .iter()
        .any(|it| it.duty_cycle.is_some())
    {
        warnings.push(
            "processes were paused: blocks that they freed meanwhile count as live where the filter chooses single blocks"
                .to_owned(),
        );
    }
    warnings
}

/// Fails if a metric is not known of the chosen blocks.
pub(super) fn check(chosen: Option<ChosenBlocks>, metric: Option<Metric>) -> anyhow::Result<()> {
    let (Some(chosen), Some(metric)) = (chosen, metric) else {
        return Ok(());
    };
    match metric {
        Metric::PeakBytes | Metric::Temporary => bail!(
            "{} are not known of single blocks, which the filter chooses; use --metric live-bytes",
            metric.title()
        ),
        Metric::TotalBytes | Metric::TotalAllocations if !chosen.has_freed => bail!(
            "{} are not known of single blocks, which the filter chooses, in a recording without `record --events`, or a part of one; \
             use --metric live-bytes",
            metric.title()
        ),
        _ => Ok(()),
    }
}
