//! Stage output: writes a profile and its symbols in formats for people and for programs.
//!
//! Each format is a pure function from [`ReportInput`] to a writer, in a file of its own.

mod cgroup;
mod error;
mod filter;
mod flamegraph;
mod folded;
mod format;
mod frame;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod glob;
mod grouping;
mod groups;
mod json;
mod label;
mod metric;
mod pprof;
mod proto;
mod report;
mod report_input;
mod select;
mod shorten;
mod snapshots;
mod sum;
#[cfg(test)]
mod tests;

pub use error::OutputError;
pub use filter::Filter;
pub use format::Format;
pub use grouping::Grouping;
pub use groups::{Group, groups};
pub use label::Label;
pub use metric::Metric;
pub use report::{ReportOptions, write_summary};
pub use report_input::ReportInput;
pub use select::select;
pub(crate) use shorten::function as shorten_function;
pub use snapshots::{write_snapshots, write_snapshots_json};
