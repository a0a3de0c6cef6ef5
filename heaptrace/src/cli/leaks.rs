//! `heaptrace leaks`: shows what leaks in a data file.
//!
//! Part of the command line. Must not know how leaks are found, nor how they look: the output stage does.

use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, ensure};

use super::invocation::{Color, Format, Input, Ranking};
use super::report::{self, Screen};
use super::{input, message};
use crate::open;
use crate::output::{self, LeakOptions, Suppressions, Wrappers};
use crate::text;

/// Longest file of suppressions.
const LONGEST: u64 = 1 << 20;

pub(super) fn run(
    input: &Input,
    format: Format,
    ranking: Ranking,
    wrappers: Wrappers,
    suppressions: &[PathBuf],
    color: Color,
) -> anyhow::Result<ExitCode> {
    let screen = Screen::stdout(color);
    let mut options = LeakOptions::default();
    // Before the rights to open files are given up.
    for path in suppressions {
        options.suppressions = options.suppressions.and(read_suppressions(path)?);
    }
    let mut loaded = input::load(input, None)?;
    loaded.wrappers = wrappers;
    options.from_ns = loaded.profile.range.map(|range| range.from_ns);
    // A text begins with the warnings, so on a terminal they would be shown twice.
    if format == Format::Json || !screen.is_terminal {
        loaded.warn();
    }
    if loaded.has_chosen_blocks() {
        message::note(
            "growth is that of all blocks of a stack, and what was left that of the chosen ones",
        );
    }
    let report_input = loaded.report_input();
    let leaks = output::find_leaks(&report_input, &loaded.history, &options);
    let mut out = BufWriter::new(io::stdout().lock());
    match format {
        Format::Text => {
            let options = report::options(ranking, &loaded.profile, screen);
            output::write_leaks(&report_input, &leaks, &options, &mut out)?;
        }
        Format::Json => {
            let top = ranking.top.unwrap_or(usize::MAX);
            output::write_leaks_json(&report_input, &leaks, top, &mut out)?;
        }
    }
    out.flush()?;
    Ok(loaded.exit_code())
}

fn read_suppressions(path: &Path) -> anyhow::Result<Suppressions> {
    let name = path.to_string_lossy();
    let name = text::escape(&name);
    let mut text = String::new();
    let failed = || format!("can't read the suppressions of {name}");
    let file = open::named(path).with_context(failed)?.file;
    file.take(LONGEST + 1)
        .read_to_string(&mut text)
        .with_context(failed)?;
    ensure!(
        text.len() as u64 <= LONGEST,
        "{name} is no file of suppressions: it has more than {}",
        text::bytes(LONGEST)
    );
    Suppressions::parse(&text).map_err(|why| anyhow!("{name}: {why}"))
}
