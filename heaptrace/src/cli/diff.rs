//! `heaptrace diff`: compares two data files, or two moments of one.
//!
//! Part of the command line. Must not know how a difference is found or looks: the output stage does.

use std::process::ExitCode;

use super::destination::{Output, To};
use super::input::{self, Loaded};
use super::invocation::{Color, Input, Ranking};
use super::report::Screen;
use crate::output::{self, DiffFormat, DiffOptions, Label, Metric, Side, Wrappers};

/// Compares the data files, and writes the difference.
pub(super) fn run(
    [old, new]: [&Input; 2],
    ranking: Ranking,
    wrappers: Wrappers,
    format: DiffFormat,
    to: &To<'_>,
    color: Color,
) -> anyhow::Result<ExitCode> {
    let to = Output::open(to)?;
    let screen = Screen::of(&to, color);
    let names = [name(old), name(new)];
    let loaded = input::load_both([old, new], &to)?;
    let [mut old, mut new] = loaded;
    for loaded in [&mut old, &mut new] {
        loaded.check(ranking.metric)?;
        loaded.wrappers = wrappers.clone();
    }
    if format != DiffFormat::Text {
        [&old, &new].into_iter().for_each(Loaded::warn);
    }
    let options = DiffOptions {
        metric: ranking.metric.unwrap_or_else(|| metric(&old, &new)),
        by: ranking.by.unwrap_or(Label::Stack),
        top: ranking.top,
        color: screen.color,
        width: screen.width,
    };
    let [old_name, new_name] = &names;
    let old_side = Side::new(old_name, old.report_input());
    let new_side = Side::new(new_name, new.report_input());
    to.write_and_say("open it in a browser", |out| {
        output::write_diff(&old_side, &new_side, format, &options, out)
    })?;
    Ok(input::exit_code(old.is_damaged() || new.is_damaged()))
}

/// The metric of both runs if the user chose none. A run whose processes have all ended has nothing live, so if only one of them has,
/// only what was live at the peak can be compared; since a mark, or of single blocks, only what was allocated.
fn metric(old: &Loaded, new: &Loaded) -> Metric {
    let usual = [&old.profile, &new.profile].map(Metric::usual);
    match usual {
        [of_old, of_new] if of_old == of_new => of_new,
        _ if !old.has_mark() && !old.has_chosen_blocks() => Metric::PeakBytes,
        _ => Metric::TotalBytes,
    }
}

/// The name of a file, with the moment if there is one.
fn name(input: &Input) -> String {
    let file = input.file.display();
    match input.at {
        Some(at) => format!("{file} at {at}"),
        None => file.to_string(),
    }
}
