//! The memory map for programs: JSON, schema 1.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use std::io::Write;

use serde::Serialize;

use super::account::{Estimated, SiteMemory, States};
use super::process::{ProcessMap, not_read};
use super::row::Row;
use crate::output::error::OutputError;
use crate::output::json::{Head, Remarks, Stack};
use crate::output::json_escaping::write_line;
use crate::output::label::kind_name;
use crate::output::report_input::ReportInput;
use crate::proc::residency::{Mapping, MappingKind};

/// Writes the maps as one line, at most `top` sites of each.
pub fn write_map_json(
    input: &ReportInput<'_>,
    maps: &[ProcessMap<'_>],
    top: usize,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let report = Report {
        head: Head::of(input),
        remarks: Remarks::of(input),
        processes: maps.iter().map(|it| Process::new(input, it, top)).collect(),
        processes_not_read: not_read(input.profile),
    };
    Ok(write_line(&report, out)?)
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    #[serde(flatten)]
    remarks: Remarks<'a>,
    processes: Vec<Process<'a>>,
    /// Processes with recorded blocks whose memory was never read: there were too many, or it could not be read.
    processes_not_read: u64,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    command: &'a str,
    /// When its memory was read, and for how long.
    at_ns: u64,
    took_ns: u64,
    /// The allocator whose rounding and headers are meant; absent if it is not certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocator: Option<&'static str>,
    /// Whether it had memory before it was traced: such blocks count as free here.
    had_memory_before: bool,
    /// Why the states of pages are not known; absent if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_pages: Option<&'a str>,
    /// What the kernel counts as resident (VmRSS), and the sum of the rows.
    resident_bytes: u64,
    sum_bytes: u64,
    rows: Vec<RowJson>,
    live: StatesJson,
    /// Resident pages of the allocator: empty, up to a quarter in use, up to a half, up to three quarters, not quite full, full.
    /// Absent in samples, and if pages are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pages_by_fullness: Option<[u64; super::account::CLASSES]>,
    sites: Vec<Site<'a>>,
    mappings: Vec<MappingJson<'a>>,
    /// Mappings that found no room in the list.
    mappings_left_out: u64,
    /// Parts that the program mapped itself, and that found no room: they count as other memory.
    mapped_left_out: u64,
}

#[derive(Serialize)]
struct RowJson {
    what: &'static str,
    bytes: u64,
    /// Absent if the bytes were counted.
    #[serde(skip_serializing_if = "is_zero")]
    error: u64,
}

#[derive(Serialize)]
struct StatesJson {
    resident_bytes: u64,
    huge_bytes: u64,
    swapped_bytes: u64,
    untouched_bytes: u64,
    /// In memory whose pages were not looked at.
    unknown_bytes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    resident_bytes_error: u64,
}

#[derive(Serialize)]
struct Site<'a> {
    kind: &'static str,
    blocks: u64,
    /// Recorded samples, and the standard error of `blocks`; absent in an exact run.
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    blocks_error: u64,
    #[serde(flatten)]
    states: StatesJson,
    /// Its part of the free bytes on resident pages, and on those that are nearly empty; absent in samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    free_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_pages: Option<u64>,
    stack: Stack<'a>,
    /// The type of the blocks, absent where it is unknown.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    block_type: Option<&'a str>,
}

#[derive(Serialize)]
struct MappingJson<'a> {
    start: String,
    end: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    resident_bytes: u64,
    private_bytes: u64,
    swapped_bytes: u64,
    huge_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl<'a> Process<'a> {
    fn new(input: &'a ReportInput<'a>, it: &'a ProcessMap<'a>, top: usize) -> Self {
        let residency = &it.map.residency;
        let is_sampled = input.profile.info.mode.is_sampled();
        let has_pages = residency.unknown_pages.is_none() && !it.is_partial();
        Self {
            pid: it.owner.pid,
            command: &it.owner.command,
            at_ns: it.map.at_ns,
            took_ns: it.map.took_ns,
            allocator: it.allocator(),
            had_memory_before: it.is_older(),
            unknown_pages: residency.unknown_pages.as_deref(),
            resident_bytes: residency.resident,
            sum_bytes: it.account.sum(),
            rows: it.account.rows.iter().map(RowJson::from).collect(),
            live: StatesJson::from(&it.account.live),
            pages_by_fullness: has_pages.then_some(it.account.pages),
            sites: it
                .sites()
                .take(top)
                .map(|site| Site::new(input, site, is_sampled, has_pages))
                .collect(),
            mappings: residency.mappings.iter().map(MappingJson::from).collect(),
            mappings_left_out: residency.left_out,
            mapped_left_out: it.map.mapped_left_out,
        }
    }
}

impl From<&Row> for RowJson {
    fn from(row: &Row) -> Self {
        Self {
            what: row.what.key(),
            bytes: row.bytes,
            error: row.error,
        }
    }
}

impl From<&States> for StatesJson {
    fn from(states: &States) -> Self {
        Self {
            resident_bytes: states.resident.value(),
            huge_bytes: states.huge.value(),
            swapped_bytes: states.swapped.value(),
            untouched_bytes: states.untouched.value(),
            unknown_bytes: states.unknown.value(),
            resident_bytes_error: states.resident.error(),
        }
    }
}

impl<'a> Site<'a> {
    fn new(
        input: &'a ReportInput<'a>,
        site: &SiteMemory,
        is_sampled: bool,
        has_pages: bool,
    ) -> Self {
        Self {
            kind: kind_name(site.kind),
            blocks: Estimated::value(site.count),
            samples: is_sampled.then_some(site.blocks),
            blocks_error: site.count.error(),
            states: StatesJson::from(&site.states),
            free_bytes: has_pages.then_some(site.free),
            pinned_bytes: has_pages.then_some(site.pinned),
            pinned_pages: has_pages.then_some(site.pinned_pages),
            stack: Stack(input, site.stack),
            block_type: (site.kind == crate::join::Kind::Heap)
                .then(|| input.symbols.types.of(site.stack))
                .flatten()
                .map(|it| it.name.as_str()),
        }
    }
}

impl<'a> From<&'a Mapping> for MappingJson<'a> {
    fn from(it: &'a Mapping) -> Self {
        Self {
            start: format!("{:#x}", it.start),
            end: format!("{:#x}", it.end),
            kind: match it.kind {
                MappingKind::Anonymous => "anonymous",
                MappingKind::Heap => "heap",
                MappingKind::Stack => "stack",
                MappingKind::File => "file",
                MappingKind::Shared => "shared",
                MappingKind::Kernel => "kernel",
            },
            name: &it.name,
            resident_bytes: it.resident,
            private_bytes: it.private,
            swapped_bytes: it.swapped,
            huge_bytes: it.huge,
        }
    }
}
