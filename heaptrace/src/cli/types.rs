//! `heaptrace types`: lists the types of the blocks in a data file.
//!
//! Part of the command line. Must not know how types are found or look: the output stage does.

use std::io::{self, BufWriter, Write as _};
use std::process::ExitCode;

use super::input;
use super::invocation::{Color, Format, Input, Ranking};
use super::report::{self, Screen};
use crate::output::{self, Label, Wrappers};

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
    loaded.wrappers = wrappers;
    // A text begins with the warnings, so on a terminal they would be shown twice.
    if format == Format::Json || !screen.is_terminal {
        loaded.warn();
    }
    let options = report::options(ranking, &loaded.profile, screen);
    let top = match format {
        Format::Text => Some(options.top),
        Format::Json => ranking.top,
    };
    let report_input = loaded.report_input();
    let by = ranking.by.unwrap_or(Label::Type);
    let found = output::find_types(&report_input, by, options.metric, top);
    let mut out = BufWriter::new(io::stdout().lock());
    match format {
        Format::Text => output::write_types(&report_input, &found, &options, &mut out)?,
        Format::Json => output::write_types_json(&report_input, &found, &mut out)?,
    }
    out.flush()?;
    Ok(loaded.exit_code())
}
