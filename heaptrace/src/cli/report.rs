//! `heaptrace report`: what a data file holds, on standard output.
//!
//! Part of the command line, no stage of the flow. How it reads is the output stage's business.

use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::process::ExitCode;

use super::{Color, Format, Input, input, message, offline};
use crate::output::{self, Grouping, Label, Metric, ReportInput, ReportOptions};
use crate::profile::Profile;
use crate::view;

/// What to put together and first, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// What puts sites together, if anything does.
    pub by: Option<Label>,
    /// What comes first.
    pub metric: Metric,
    /// How many to show, where the user said so.
    pub top: Option<usize>,
}

impl Ranking {
    /// The groups that are wanted, if any are.
    pub(super) fn grouping(&self) -> Option<Grouping> {
        self.by.map(|by| Grouping {
            by,
            metric: self.metric,
            cumulative: true,
            top: self.top,
        })
    }
}

pub(super) fn run(
    input: &Input,
    format: Format,
    ranking: Ranking,
    color: Color,
) -> anyhow::Result<ExitCode> {
    // Asked now: once it reads, this process may ask a terminal nothing.
    let is_terminal = io::stdout().is_terminal();
    let as_text = text(ranking, color);
    let mut loaded = input::load(input, None)?;
    loaded.grouping = ranking.grouping();
    match format {
        Format::Text => {
            // They head the report: a reader at a terminal need not see them twice.
            if !is_terminal {
                loaded.warn();
            }
            print(&loaded.findings(), &as_text)?;
        }
        Format::Json => {
            loaded.warn();
            // With groups, it is they that are meant.
            if ranking.by.is_none()
                && let Some(top) = ranking.top
            {
                keep(&mut loaded.profile, ranking.metric, top);
            }
            print(&loaded.findings(), &output::Format::Json)?;
        }
    }
    Ok(loaded.exit_code())
}

/// Lists the snapshots of a data file.
pub(super) fn snapshots(input: &Input, format: Format) -> anyhow::Result<ExitCode> {
    let recording = offline::open(input)?.read(None)?.recording;
    recording.warnings.iter().for_each(message::warn);
    let mut out = io::stdout().lock();
    match format {
        Format::Text => output::write_snapshots(&recording.snapshots, &mut out)?,
        Format::Json => output::write_snapshots_json(&recording.snapshots, &mut out)?,
    }
    Ok(input::exit_code(recording.is_damaged))
}

/// The report for people, as wide and as colorful as standard output can show it.
pub(super) fn text(ranking: Ranking, color: Color) -> output::Format {
    let stdout = io::stdout();
    let defaults = ReportOptions::default();
    output::Format::Text(ReportOptions {
        metric: ranking.metric,
        top: ranking.top.unwrap_or(defaults.top),
        color: color.for_stream(&stdout),
        width: view::size_of(&stdout).map(|size| size.columns),
    })
}

/// Writes findings to standard output.
pub(super) fn print(findings: &ReportInput<'_>, format: &output::Format) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    format.write(findings, &mut out)?;
    // Dropping it would hide that the disk behind a redirection is full.
    Ok(out.flush()?)
}

/// Leaves only the sites with most of a metric; totals stay those of the run.
fn keep(profile: &mut Profile, metric: Metric, top: usize) {
    let kept = view::ranked(profile, metric, top)
        .into_iter()
        .filter_map(|id| profile.sites.get(id.0 as usize).copied())
        .collect();
    profile.sites = kept;
}
