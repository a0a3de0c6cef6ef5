//! The types of a run for programs: JSON, schema 1.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use serde::Serialize;

use super::rows::{TypeRow, TypesFound};
use crate::output::counters::Counters;
use crate::output::error::OutputError;
use crate::output::interval::Intervals;
use crate::output::json::{Head, Range, Remarks, Stack};
use crate::output::json_escaping::write_line;
use crate::output::report_input::ReportInput;
use crate::output::site_types::{Blocks, Number};
use crate::profile::Way;

/// Writes the types as one line.
pub fn write_types_json(
    input: &ReportInput<'_>,
    found: &TypesFound,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let profile = input.profile;
    let intervals = &Intervals::of(profile);
    let ways = Way::ALL.into_iter().zip(found.shares.ways);
    let report = Report {
        head: Head::of(input),
        range: profile.range.map(Into::into),
        remarks: Remarks::of(input),
        by: found.by.name(),
        metric: found.metric.name(),
        all_types: found.all,
        found: Found {
            ways: ways.map(|(way, value)| (way.name(), value)).collect(),
            unknown: found.shares.unknown,
            mapped: found.shares.mapped,
        },
        types: found
            .rows
            .iter()
            .map(|row| Type::new(input, row, intervals))
            .collect(),
        live_classes: input
            .symbols
            .types
            .classes
            .iter()
            .map(|it| LiveClass {
                name: Some(it.name.as_str()).filter(|it| !it.is_empty()),
                blocks: it.blocks,
                bytes: it.bytes,
            })
            .collect(),
    };
    Ok(write_line(&report, out)?)
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<Range>,
    #[serde(flatten)]
    remarks: Remarks<'a>,
    by: &'static str,
    metric: &'static str,
    all_types: usize,
    found: Found,
    types: Vec<Type<'a>>,
    /// The live blocks that were inspected, by class. Absent if none were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    live_classes: Vec<LiveClass<'a>>,
}

#[derive(Serialize)]
struct LiveClass<'a> {
    /// Absent for blocks that begin with no object of a known class.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    blocks: u64,
    bytes: u64,
}

/// How much of the metric has a type by each way, and how much has none.
#[derive(Serialize)]
struct Found {
    #[serde(flatten)]
    ways: BTreeMap<&'static str, u64>,
    unknown: u64,
    mapped: u64,
}

#[derive(Serialize)]
struct Type<'a> {
    name: &'a str,
    /// Whether it is a type, and does not stand for what has none.
    is_known: bool,
    elements: &'a BTreeSet<String>,
    ways: Vec<&'static str>,
    is_capacity: bool,
    totals: Counters,
    sites: u64,
    /// Absent if they are not known of all blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    live_elements: Option<Elements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_at_exit_elements: Option<Elements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated_elements: Option<Elements>,
    /// Absent if it was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime: Option<Lifetime>,
    stacks: u64,
    /// The stack that has most of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_by: Option<MadeBy<'a>>,
}

#[derive(Serialize)]
struct Elements {
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    count_error: Option<u64>,
}

/// How long freed blocks lived. The mean is computed of a histogram, and within an eighth of the true one.
#[derive(Serialize)]
struct Lifetime {
    freed_blocks: u64,
    mean_ns: u64,
}

#[derive(Serialize)]
struct MadeBy<'a> {
    stack: Stack<'a>,
    user_frame: usize,
}

impl<'a> Type<'a> {
    fn new(input: &'a ReportInput<'a>, row: &'a TypeRow, intervals: &Intervals) -> Self {
        let is_sampled = intervals.are_of_a_sample();
        let elements = |blocks| {
            let Number { value, error } = row.counted.of(blocks).filter(|_| row.is_known)?;
            Some(Elements {
                count: value,
                count_error: is_sampled.then_some(error),
            })
        };
        Self {
            name: &row.name,
            is_known: row.is_known,
            elements: &row.elements,
            ways: row.ways.iter().map(|way| way.name()).collect(),
            is_capacity: row.is_capacity,
            totals: Counters::new(&row.totals, intervals),
            sites: row.sites,
            live_elements: elements(Blocks::Live),
            left_at_exit_elements: elements(Blocks::Left),
            allocated_elements: elements(Blocks::Allocated),
            lifetime: row.lifetime.map(|(freed_blocks, mean_ns)| Lifetime {
                freed_blocks,
                mean_ns,
            }),
            stacks: row.stacks,
            made_by: row.made_by.map(|stack| MadeBy {
                stack: Stack(input, stack),
                user_frame: input.user_frame(stack, &input.stack(stack)),
            }),
        }
    }
}
