//! `heaptrace report`: shows a data file on standard output.
//!
//! Part of the command line. Must not know how a report looks: the output stage does.

use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;

use super::destination::Output;
use super::invocation::{Color, Format, Input, Ranking, WantedSources};
use super::sources::Sources;
use super::{debuginfod, input, message, offline};
use crate::output::{self, Metric, ReportInput, ReportOptions, SourceFiles, Wrappers};
use crate::profile::Profile;
use crate::symbolize::DebugSources;
use crate::view;

pub(super) fn run(
    input: &Input,
    format: Format,
    ranking: Ranking,
    wrappers: Wrappers,
    color: Color,
) -> anyhow::Result<ExitCode> {
    let screen = Screen::stdout(color);
    let mut loaded = input::load(input, None)?;
    loaded.check(ranking.metric)?;
    loaded.grouping = ranking.grouping(&loaded.profile);
    loaded.wrappers = wrappers;
    match format {
        Format::Text => {
            // The report begins with the warnings, so on a terminal they would be shown twice.
            if !screen.is_terminal {
                loaded.warn();
            }
            let format = text(ranking, &loaded.profile, screen);
            print(&loaded.report_input(), &format)?;
        }
        Format::Json => {
            loaded.warn();
            // With groups, --top limits the groups.
            if ranking.by.is_none()
                && let Some(top) = ranking.top
            {
                let metric = ranking.metric(&loaded.profile);
                keep(&mut loaded.profile, metric, top);
            }
            print(&loaded.report_input(), &output::Format::Json)?;
        }
    }
    Ok(loaded.exit_code())
}

/// Shows the source files of a data file, with the memory of each line.
pub(super) fn source(
    input: &Input,
    format: Format,
    ranking: Ranking,
    wrappers: Wrappers,
    wanted: &WantedSources,
    color: Color,
) -> anyhow::Result<ExitCode> {
    let screen = Screen::stdout(color);
    let sources = Sources::start(&wanted.places, debuginfod::servers());
    let mut sources = sources.context("can't start a process")?;
    let mut loaded = input::load(input, None)?;
    loaded.check(ranking.metric)?;
    loaded.wrappers = wrappers;
    loaded.warn();
    let options = options(ranking, &loaded.profile, screen);
    let top = match (ranking.top, format) {
        (None, Format::Json) => usize::MAX,
        _ => options.top,
    };
    let report_input = loaded.report_input();
    let choice = wanted.choice.as_ref();
    let (files, all) = output::source_files(&report_input, options.metric, top, choice);
    let begun = loaded.profile.info.started_unix_ns;
    let files = files.into_iter().map(|file| {
        let text = sources.text(&file, begun)?;
        let text = match format {
            Format::Text => text,
            Format::Json => text.of_lines(&file),
        };
        Ok((file, text))
    });
    let files: Vec<_> = files
        .collect::<io::Result<_>>()
        .context("the process that reads source files ended early")?;
    let found = SourceFiles {
        files,
        all,
        are_chosen: choice.is_some(),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    match format {
        Format::Text => output::write_source(&report_input, &options, &found, &mut out)?,
        Format::Json => output::write_source_json(&report_input, &found, &mut out)?,
    }
    out.flush()?;
    Ok(loaded.exit_code())
}

/// Lists the snapshots of a data file.
pub(super) fn snapshots(input: &Input, format: Format) -> anyhow::Result<ExitCode> {
    let recording = offline::open(input, DebugSources::in_folders(&[]))?
        .read(None)?
        .recording;
    recording.warnings.iter().for_each(message::warn);
    let mut out = io::stdout().lock();
    match format {
        Format::Text => output::write_snapshots(&recording.snapshots, &mut out)?,
        Format::Json => output::write_snapshots_json(&recording.snapshots, &mut out)?,
    }
    Ok(input::exit_code(recording.is_damaged))
}

/// What standard output shows. Found out before the process gives up its rights: then it may not ask about a terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    pub(super) color: bool,
    pub(super) width: Option<usize>,
    pub(super) is_terminal: bool,
}

impl Screen {
    pub(super) fn stdout(color: Color) -> Self {
        let stdout = io::stdout();
        Self {
            color: color.for_stream(&stdout),
            width: view::size_of(&stdout).map(|size| size.columns),
            is_terminal: stdout.is_terminal(),
        }
    }

    /// What an output shows: a file has no colors and no width.
    pub(super) fn of(output: &Output, color: Color) -> Self {
        match output.is_stream() {
            true => Self::stdout(color),
            false => Self {
                color: false,
                width: None,
                is_terminal: false,
            },
        }
    }
}

/// The format of the report of a profile for people.
pub(super) fn text(ranking: Ranking, profile: &Profile, screen: Screen) -> output::Format {
    output::Format::Text(options(ranking, profile, screen))
}

pub(super) fn options(ranking: Ranking, profile: &Profile, screen: Screen) -> ReportOptions {
    ReportOptions {
        metric: ranking.metric(profile),
        top: ranking.top.unwrap_or(ReportOptions::default().top),
        details: ranking.details,
        histogram: ranking.histogram,
        color: screen.color,
        width: screen.width,
    }
}

/// Writes a report to standard output.
pub(super) fn print(report_input: &ReportInput<'_>, format: &output::Format) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    format.write(report_input, &mut out)?;
    // An implicit flush at drop would hide that the disk behind a redirection is full.
    Ok(out.flush()?)
}

/// Keeps only the sites with most of a metric; the totals stay those of the run.
fn keep(profile: &mut Profile, metric: Metric, top: usize) {
    let kept = view::ranked(profile, metric, top)
        .into_iter()
        .filter_map(|id| profile.sites.get(id.0 as usize).copied())
        .collect();
    profile.sites = kept;
}
