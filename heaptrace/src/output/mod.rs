//! Stage output: a profile and its symbols, written in the formats that people and programs read.

mod metric;

pub use metric::Metric;
