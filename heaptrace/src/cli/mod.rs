//! The command line: parses the arguments to an [`Invocation`], and does its action.
//!
//! Part of the crate, no stage of the flow: it may use all stages, and no stage uses it.

mod args;
mod block_args;
mod choices;
mod chosen_blocks;
mod convert;
mod debuginfod;
mod destination;
mod diff;
mod diff_args;
mod doctor;
mod examples;
mod exit;
mod filter_args;
mod filters;
mod followed;
mod input;
mod input_args;
mod invocation;
mod leaks;
mod live;
mod live_types;
mod logging;
mod map;
mod map_args;
mod message;
mod moment;
mod namer;
mod names;
mod naming;
mod offline;
mod on_oom;
mod overhead;
mod parse;
mod placements;
mod progress;
mod question;
mod record;
mod record_args;
mod report;
mod rotation;
mod rotator;
mod run_args;
mod side_process;
mod source_path;
mod sources;
mod summary;
mod symbolize;
mod symbolize_args;
mod timeline;
mod timeline_args;
mod types;
mod types_args;
mod unreachable_summary;
mod values;
mod who;
mod who_answer;
mod who_args;
mod who_classes;
mod who_live;

use std::process::ExitCode;

use anyhow::Context as _;

use crate::sandbox::{Kept, rights};

use destination::To;

pub use exit::failure_code;
pub use invocation::{
    Action, Color, Filters, Format, Input, Invocation, MapFormat, MapOptions, Question, Ranking,
    Source, WantedSources,
};
pub use moment::Moment;
pub use parse::{Stop, parse};
pub use question::Asked;
pub use rotation::{Limit, Rotation};
pub use source_path::SourcePath;

/// Does the action of an invocation.
pub fn run(invocation: Invocation) -> anyhow::Result<ExitCode> {
    logging::start(invocation.verbosity, invocation.color);
    let color = invocation.color;
    if !invocation.action.traces() && !rustix::process::geteuid().is_root() {
        // A binary with file capabilities, which a group may run, has rights of its own. They are for
        // tracing, and must not give access to data files.
        rights::keep(Kept::empty()).context("can't give up rights that only tracing needs")?;
    }
    match invocation.action {
        Action::Live {
            run,
            ranking,
            wrappers,
            languages,
            filters,
            full_names,
            details,
        } => live::run(
            &run,
            live::Shown {
                ranking,
                wrappers,
                languages,
                filters,
                full_names,
                details,
                color,
            },
        ),
        Action::Record {
            run,
            output,
            rotate,
            on_oom,
        } => record::run(&run, output, rotate, on_oom),
        Action::Report {
            input,
            format,
            ranking,
            wrappers,
        } => report::run(&input, format, ranking, wrappers, color),
        Action::Source {
            input,
            format,
            ranking,
            wrappers,
            wanted,
        } => report::source(&input, format, ranking, wrappers, &wanted, color),
        Action::Leaks {
            input,
            format,
            ranking,
            wrappers,
            suppressions,
        } => leaks::run(&input, format, ranking, wrappers, &suppressions, color),
        Action::Timeline {
            input,
            ranking,
            wrappers,
            format,
            output,
            force,
        } => timeline::run(
            &input,
            ranking,
            wrappers,
            format,
            &To::new(&output, force),
            color,
        ),
        Action::Map {
            input,
            wrappers,
            options,
            output,
            force,
        } => map::run(&input, wrappers, &options, &To::new(&output, force), color),
        Action::Snapshots { input, format } => report::snapshots(&input, format),
        Action::Flamegraph {
            input,
            output,
            force,
            metric,
            by,
            types,
        } => convert::flamegraph(&input, &To::new(&output, force), metric, by, types),
        Action::Pprof {
            input,
            output,
            force,
        } => convert::pprof(&input, &To::new(&output, force)),
        Action::Export {
            input,
            output,
            force,
            format,
            metric,
        } => convert::export(&input, output, force, format, metric),
        Action::Diff {
            old,
            new,
            ranking,
            wrappers,
            format,
            output,
            force,
        } => diff::run(
            [&old, &new],
            ranking,
            wrappers,
            format,
            &To::new(&output, force),
            color,
        ),
        Action::Types {
            input,
            format,
            ranking,
            wrappers,
        } => types::run(&input, format, ranking, wrappers, color),
        Action::Symbolize {
            input,
            output,
            force,
            debug_dirs,
        } => symbolize::run(&input, output.as_deref(), force, &debug_dirs),
        Action::Who(question) => who::run(&question, color),
        Action::GdbCommands => who::gdb_commands(),
        Action::Doctor { pids, allocators } => doctor::run(&pids, &allocators, color),
        Action::Names { file, types } => names::run(&file, types),
        Action::Placements { files } => placements::run(&files),
    }
}
