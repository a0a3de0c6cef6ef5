//! `heaptrace map`: shows what resident memory is made of.
//!
//! Part of the command line. Must not know how it is found or looks: the output stage does.

use std::process::ExitCode;

use anyhow::bail;

use super::destination::{Output, To};
use super::input;
use super::invocation::{Color, Input, MapFormat, MapOptions};
use super::report::Screen;
use crate::output::{self, ReportOptions, Wrappers};
use crate::text;

/// The sites of a list if the user did not say how many.
const TOP: usize = 10;

pub(super) fn run(
    input: &Input,
    wrappers: Wrappers,
    wanted: &MapOptions,
    to: &To<'_>,
    color: Color,
) -> anyhow::Result<ExitCode> {
    let to = Output::open(to)?;
    let screen = Screen::of(&to, color);
    let mut loaded = input::load_with_memory(input, Some(&to))?;
    loaded.wrappers = wrappers;
    // A text begins with the warnings, so on a terminal they would be shown twice.
    if wanted.format != MapFormat::Text || !screen.is_terminal {
        loaded.warn();
    }
    let report_input = loaded.report_input();
    let processes = loaded.blocks.as_ref().map_or(&[][..], |it| &it.processes);
    let maps = output::process_maps(&report_input, processes, wanted.pid);
    if maps.is_empty() {
        let file = input.file.to_string_lossy();
        let file = text::escape(&file);
        let all = output::process_maps(&report_input, processes, None);
        match wanted.pid {
            _ if loaded.blocks.is_none() => bail!(
                "{file} has no single blocks, so there is no map: record with `heaptrace record --blocks`"
            ),
            Some(pid) if !all.is_empty() => {
                let pids: Vec<_> = all.iter().map(|it| it.owner.pid.to_string()).collect();
                bail!(
                    "{file} has no map of process {pid}, but of {}",
                    pids.join(", ")
                )
            }
            _ => bail!(
                "{file} has no memory of a process: it was not read before the process ended, or nothing matches the filters"
            ),
        }
    }
    match wanted.format {
        MapFormat::Text => {
            let options = ReportOptions {
                top: wanted.top.unwrap_or(TOP),
                details: wanted.details,
                color: screen.color,
                width: screen.width,
                ..ReportOptions::default()
            };
            to.write_and_say("show it with: less FILE", |out| {
                output::write_map(&report_input, &maps, &options, out)
            })?;
        }
        MapFormat::Json => {
            let top = wanted.top.unwrap_or(usize::MAX);
            to.write_and_say("look into it with: jq .processes FILE", |out| {
                output::write_map_json(&report_input, &maps, top, out)
            })?;
        }
        MapFormat::Svg => {
            to.write_and_say("open it in a browser", |out| match maps.first() {
                Some(map) => output::write_map_picture(&report_input, map, wanted.color, out),
                None => Ok(()),
            })?;
        }
    }
    Ok(loaded.exit_code())
}
