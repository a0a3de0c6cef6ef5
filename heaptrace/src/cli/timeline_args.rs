//! The options of `heaptrace timeline`.
//!
//! Part of the command line. Turns clap's types into plain ones.

use std::path::PathBuf;

use clap::Args;

use super::choices::{by, timeline_format, timeline_metric};
use super::input_args::{Input, Naming, Wrapping, Written};
use super::invocation::{Action, Ranking};
use crate::output::{Label, Metric, TimelineFormat, Wrappers};

#[derive(Debug, Args)]
pub(super) struct Timeline {
    #[command(flatten)]
    pub(super) input: Input,
    /// What is followed beside the total [default: stack].
    ///
    /// KEY is stack, function, line, module, language, kind, thread, process, pid, cgroup, container, unit, type or element. Functions, lines and
    /// modules have their own allocations, without those of the functions that they call.
    #[arg(long, value_name = "KEY", default_value = "stack", value_parser = by(&Label::ALL))]
    by: Label,
    /// Number of stacks or groups to follow: those that had most at any time [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// The number that is followed: live-bytes, live-allocations, total-bytes or total-allocations
    #[arg(long, value_name = "METRIC", default_value = "live-bytes", value_parser = timeline_metric())]
    metric: Metric,
    /// Output format: text for a plot in the terminal, svg for a picture, csv or json for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = timeline_format())]
    format: TimelineFormat,
    /// The file to write; - for standard output [default: -; heaptrace.timeline.svg for svg]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    written: Written,
    #[command(flatten)]
    wrapping: Wrapping,
    #[command(flatten)]
    naming: Naming,
}

impl From<Timeline> for Action {
    fn from(timeline: Timeline) -> Self {
        let usual = match timeline.format {
            TimelineFormat::Svg => "heaptrace.timeline.svg",
            _ => "-",
        };
        let wrappers: Wrappers = timeline.wrapping.into();
        Self::Timeline {
            input: timeline.input.of(&timeline.naming),
            ranking: Ranking {
                by: Some(timeline.by),
                metric: Some(timeline.metric),
                top: timeline.top.map(|top| top as usize),
                details: false,
                histogram: false,
            },
            wrappers,
            format: timeline.format,
            output: timeline.output.unwrap_or_else(|| usual.into()),
            force: timeline.written.force,
        }
    }
}
