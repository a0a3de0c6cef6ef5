//! The options of `heaptrace map`.
//!
//! Part of the command line. Turns clap's types into plain ones.

use std::path::PathBuf;

use clap::Args;

use super::choices::{map_color, map_format};
use super::examples::MAP_EXAMPLES;
use super::input_args::{Input, Naming, Wrapping, Written};
use super::invocation::{Action, MapFormat, MapOptions};
use crate::output::MapColor;

#[derive(Debug, Args)]
#[command(after_help = MAP_EXAMPLES)]
pub(super) struct Map {
    #[command(flatten)]
    input: Input,
    /// Show this process alone [default: all; in a picture, the one with most resident memory]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Number of sites to show [default: 10; all of them in json]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Show the stack of each site
    #[arg(long)]
    details: bool,
    /// Output format: text, json for programs, svg for a picture [default: text; svg with -o FILE.svg]
    #[arg(long, value_name = "FORMAT", value_parser = map_format())]
    format: Option<MapFormat>,
    /// What the colors of the picture show: site, type of blocks, age of blocks, or fullness of pages
    #[arg(long, value_name = "WHAT", default_value = "site", value_parser = map_color())]
    color_by: MapColor,
    /// The file to write; - for standard output [default: -; heaptrace.map.svg for svg]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    written: Written,
    #[command(flatten)]
    wrapping: Wrapping,
    #[command(flatten)]
    naming: Naming,
}

impl Map {
    /// Why options can't be used together, if they can't.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        self.input.has_mark().then_some(
            "--since-mark can't be used with map: what is resident is the memory of all blocks",
        )
    }

    /// The part of the file that is shown.
    pub(super) fn input(&self) -> &Input {
        &self.input
    }
}

impl From<Map> for Action {
    fn from(map: Map) -> Self {
        let is_picture = |path: &PathBuf| path.extension().is_some_and(|it| it == "svg");
        let by_name = match map.output.as_ref().is_some_and(is_picture) {
            true => MapFormat::Svg,
            false => MapFormat::Text,
        };
        let format = map.format.unwrap_or(by_name);
        let usual = match format {
            MapFormat::Svg => "heaptrace.map.svg",
            MapFormat::Text | MapFormat::Json => "-",
        };
        Self::Map {
            input: map.input.of(&map.naming),
            wrappers: map.wrapping.into(),
            options: MapOptions {
                pid: map.pid,
                top: map.top.map(|top| top as usize),
                details: map.details,
                format,
                color: map.color_by,
            },
            output: map.output.unwrap_or_else(|| usual.into()),
            force: map.written.force,
        }
    }
}
