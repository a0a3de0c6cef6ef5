//! What the documents for programs begin with.
//!
//! Part of `json`. The order of the fields is stable.

use serde::Serialize;

use crate::output::filter::Filter;
use crate::output::report_input::ReportInput;
use crate::profile;

/// The schema, and the run that a document is about: its first fields.
#[derive(Serialize)]
pub(in crate::output) struct Head<'a> {
    schema: u32,
    version: &'a str,
    mode: Mode,
    duration_ns: u64,
    target: &'a str,
}

impl<'a> Head<'a> {
    pub(in crate::output) fn of(input: &ReportInput<'a>) -> Self {
        let profile = input.profile;
        Self {
            schema: 1,
            version: &profile.info.version,
            mode: profile.info.mode.into(),
            duration_ns: profile.duration_ns,
            target: &profile.info.target,
        }
    }
}

/// Warnings, and the filters that selected a part.
#[derive(Serialize)]
pub(in crate::output) struct Remarks<'a> {
    warnings: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters: Vec<String>,
    /// What is known, if the filters chose single blocks. These have no peaks and no temporary blocks: both are 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen_blocks: Option<Chosen>,
}

/// Blocks that filters chose one by one.
#[derive(Serialize)]
struct Chosen {
    /// Whether freed blocks are among them; without, `allocations` are those that were not freed.
    has_freed: bool,
}

impl<'a> Remarks<'a> {
    pub(in crate::output) fn of(input: &ReportInput<'a>) -> Self {
        Self {
            warnings: input.warnings,
            filters: input.filters.iter().map(Filter::in_full).collect(),
            chosen_blocks: input.chosen_blocks.map(|it| Chosen {
                has_freed: it.has_freed,
            }),
        }
    }
}

/// Whether every allocation was recorded.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(in crate::output) enum Mode {
    Exact,
    Sampled { mean_bytes: u64 },
}

impl From<profile::Mode> for Mode {
    fn from(mode: profile::Mode) -> Self {
        match mode {
            profile::Mode::Exact => Self::Exact,
            profile::Mode::Sampled { mean_bytes } => Self::Sampled { mean_bytes },
        }
    }
}
