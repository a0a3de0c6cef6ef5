//! Stage output: writes a profile and its symbols in formats for people and for programs.
//!
//! Each format is a pure function from [`ReportInput`] to a writer, in a file of its own.

mod block_sites;
mod cgroup;
mod chosen_blocks;
mod counters;
mod diff;
mod ends;
mod error;
mod export;
mod filter;
mod flamegraph;
mod folded;
mod format;
mod frame;
mod function_name;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod generations;
mod glob;
mod grouping;
mod groups;
mod image;
mod interpreted;
mod interval;
mod json;
mod json_escaping;
mod label;
mod leaks;
mod map;
mod metric;
mod module_ranges;
mod moments;
mod name_list;
mod own_peaks;
mod pprof;
mod proto;
mod rates;
mod readable;
mod reason_words;
mod report;
mod report_input;
mod select;
mod shorten;
mod shown;
mod site_types;
mod snapshots;
mod source;
mod stacks;
mod style;
mod sum;
mod svg;
#[cfg(test)]
mod tests;
mod timeline;
mod type_name;
mod types;
mod usage;
mod who;
mod wrapper_names;
mod wrappers;

pub use chosen_blocks::ChosenBlocks;
pub use diff::{DiffFormat, DiffOptions, Side, write_diff};
pub use ends::{latest_end, sudden_ends};
pub use error::OutputError;
pub use export::{Export, ExportFormat};
pub use filter::{Definitions, Expression, Filter, Problem, together};
pub use flamegraph::{drawn_metric, why_not_drawn};
pub use format::Format;
pub use frame::FunctionLabel;
pub use generations::{WantedMark, since_mark};
pub use grouping::Grouping;
pub use groups::{Covered, Group, all_groups, groups};
pub use interval::{Interval, Intervals};
pub use label::Label;
pub use leaks::{
    Growth, Leaks, Options as LeakOptions, Suppressions, find as find_leaks, write_leaks_json,
};
pub use map::{MapColor, ProcessMap, process_maps, write_map_json, write_map_picture};
pub use metric::Metric;
pub use own_peaks::has_own_peaks;
pub use report::{ReportOptions, write_leaks, write_map, write_summary, write_types, write_who};
pub use report_input::{LiveByKind, ReportInput};
pub use select::{select, select_with_history};
pub use shown::ShownLanguages;
pub use snapshots::{write_snapshots, write_snapshots_json};
pub use source::{
    SourceChoice, SourceFile, SourceFiles, SourceLine, SourceText, source_files, write_source,
    write_source_json,
};
pub use timeline::{Timeline, TimelineFormat, TimelineOptions, timeline, write_timeline};
pub use types::{TypesFound, find as find_types, write_types_json};
pub use who::{
    AskedAddress, CoreFacts, Owned, Owner, Place, Who, find as find_owners, write_who_json,
};
pub use wrappers::Wrappers;
