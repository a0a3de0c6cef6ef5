//! The report for programs: JSON, schema 1.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::ser::{CompactFormatter, Formatter};

use super::cgroup::CgroupNames;
use super::error::OutputError;
use super::grouping::Grouping;
use super::label::kind_name;
use super::metric::Metric;
use super::report_input::{ReportInput, Stretch, rates};
use crate::join::{self, Kind, Totals};
use crate::profile::{self, RunEnd, RunInfo};
use crate::text;

/// Writes the whole report, with all sites, as one line.
pub(super) fn write(input: &ReportInput<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
    let profile = input.profile;
    let is_sampled = profile.info.mode.is_sampled();
    let report = Report {
        schema: 1,
        version: &profile.info.version,
        mode: match profile.info.mode {
            profile::Mode::Exact => Mode::Exact,
            profile::Mode::Sampled { mean_bytes } => Mode::Sampled { mean_bytes },
        },
        duration_ns: profile.duration_ns,
        target: &profile.info.target,
        kernel: &profile.info.kernel,
        started_unix_ns: profile.info.started_unix_ns,
        end: match profile.end {
            RunEnd::Orderly => "orderly",
            RunEnd::CutOff => "cut-off",
            RunEnd::WentOn => "went-on",
        },
        warnings: input.warnings,
        filters: input.filters.iter().map(ToString::to_string).collect(),
        totals: Counters::new(&profile.totals, is_sampled),
        mapped: input
            .mapped()
            .map(|totals| Counters::new(&totals, is_sampled)),
        quality: Quality::new(input),
        processes: profile
            .processes
            .iter()
            .map(|process| Process::new(process, &profile.info))
            .collect(),
        sites: Sites(input),
        sizes: sizes(&profile.sizes),
        rates: rates(profile).iter().map(Rate::new).collect(),
        group_by: input.grouping.map(|grouping| grouping.by.name()),
        groups: input.grouping.map(|grouping| groups(input, grouping)),
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Escaping);
    report.serialize(&mut serializer).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    version: &'a str,
    mode: Mode,
    duration_ns: u64,
    target: &'a str,
    kernel: &'a str,
    started_unix_ns: u64,
    end: &'static str,
    warnings: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters: Vec<String>,
    totals: Counters,
    /// The part of the totals that is mapped memory, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    mapped: Option<Counters>,
    quality: Quality<'a>,
    processes: Vec<Process<'a>>,
    sites: Sites<'a>,
    sizes: Vec<SizeClass>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rates: Vec<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<Group<'a>>>,
}

/// A range of sizes that are counted together, both ends included.
#[derive(Serialize)]
struct SizeClass {
    min: u64,
    max: u64,
    calls: u64,
}

/// A period with its sampling rate.
#[derive(Serialize)]
struct Rate {
    from_ns: u64,
    to_ns: u64,
    /// Absent for the rate of all processes that have no rate of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    mean_bytes: u64,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Mode {
    Exact,
    Sampled { mean_bytes: u64 },
}

#[derive(Serialize)]
struct Counters {
    allocations: u64,
    allocated_bytes: u64,
    frees: u64,
    freed_bytes: u64,
    live_allocations: u64,
    live_bytes: u64,
    peak_live_bytes: u64,
    temporary_allocations: u64,
    /// Present if processes were paused at times.
    #[serde(skip_serializing_if = "Option::is_none")]
    uncertain_allocations: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uncertain_bytes: Option<u64>,
    #[serde(flatten)]
    errors: Option<Errors>,
}

/// Standard errors of a sampled run.
#[derive(Serialize)]
struct Errors {
    allocations_error: u64,
    allocated_bytes_error: u64,
    frees_error: u64,
    freed_bytes_error: u64,
    live_allocations_error: u64,
    live_bytes_error: u64,
    peak_live_bytes_error: u64,
    temporary_allocations_error: u64,
}

#[derive(Serialize)]
struct Quality<'a> {
    samples: u64,
    lost: &'a BTreeMap<String, u64>,
    /// Absent if it can't be known.
    untracked_frees: Option<u64>,
    failed_allocations: u64,
    stacks_complete: u64,
    stacks_truncated: u64,
    stacks_broken: u64,
    frames_unsymbolized: u64,
    noted: &'a BTreeMap<String, u64>,
    unprobed: &'a BTreeSet<String>,
    without_tables: &'a BTreeSet<String>,
    unreadable: &'a BTreeSet<String>,
    kernel_map_bytes: u64,
    agent_cpu_ns: u64,
    agent_peak_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_hit_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_overhead_percent: Option<f64>,
}

/// The duty cycle of a process that was paused at times.
#[derive(Serialize)]
struct DutyCycle {
    from_ns: u64,
    unprobed_ns: u64,
    overhead_percent: f64,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    command: &'a str,
    cgroup: &'a str,
    ended: bool,
    totals: Counters,
    allocators: Vec<Allocator<'a>>,
    start_time_ns: u64,
    untracked_frees: Option<u64>,
    failed_allocations: u64,
    lost: u64,
    merged: u64,
    command_line: &'a str,
    container: Option<Container>,
    pod: Option<String>,
    unit: Option<String>,
    slice: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probed_in_turns: Option<DutyCycle>,
}

#[derive(Serialize)]
struct Container {
    runtime: &'static str,
    id: String,
}

#[derive(Serialize)]
struct Group<'a> {
    name: String,
    totals: Counters,
    #[serde(skip_serializing_if = "Option::is_none")]
    cumulative: Option<Counters>,
    sites: u64,
    processes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Stack<'a>>,
}

#[derive(Serialize)]
struct Allocator<'a> {
    path: &'a str,
    kind: &'a str,
    hooks: &'a [String],
}

#[derive(Serialize)]
struct Site<'a> {
    pid: u32,
    totals: SiteTotals,
    stack: Stack<'a>,
    stack_end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'a str>,
    /// Absent for allocator blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
}

#[derive(Serialize)]
struct SiteTotals {
    #[serde(flatten)]
    counters: Counters,
    #[serde(skip_serializing_if = "Option::is_none")]
    live_bytes_error: Option<u64>,
    /// Whether the live bytes are larger than chance can explain.
    #[serde(
        rename = "live_bytes_significant",
        skip_serializing_if = "Option::is_none"
    )]
    is_significant: Option<bool>,
}

#[derive(Serialize)]
struct Frame<'a> {
    function: &'a str,
    module: &'a str,
    file: &'a str,
    line: u32,
    inlined: bool,
    /// Offset in the module's file, or the bare address. It is hexadecimal text, because many JSON readers
    /// can't represent 64-bit numbers.
    address: String,
}

impl Rate {
    fn new(stretch: &Stretch<'_>) -> Self {
        Self {
            from_ns: stretch.from_ns,
            to_ns: stretch.to_ns,
            pid: stretch.process.map(|process| process.pid),
            mean_bytes: stretch.mean_bytes,
        }
    }
}

impl Counters {
    fn new(totals: &Totals, is_sampled: bool) -> Self {
        let errors = &totals.errors;
        Self {
            errors: is_sampled.then_some(Errors {
                allocations_error: errors.allocations,
                allocated_bytes_error: errors.allocated_bytes,
                frees_error: errors.frees,
                freed_bytes_error: errors.freed_bytes,
                live_allocations_error: errors.live_allocations,
                live_bytes_error: errors.live_bytes,
                peak_live_bytes_error: errors.peak_live_bytes,
                temporary_allocations_error: errors.temporary_allocations,
            }),
            allocations: totals.allocations,
            allocated_bytes: totals.allocated_bytes,
            frees: totals.frees,
            freed_bytes: totals.freed_bytes,
            live_allocations: totals.live_allocations,
            live_bytes: totals.live_bytes,
            peak_live_bytes: totals.peak_live_bytes,
            temporary_allocations: totals.temporary_allocations,
            uncertain_allocations: non_zero(totals.uncertain_allocations),
            uncertain_bytes: non_zero(totals.uncertain_bytes),
        }
    }
}

impl<'a> Quality<'a> {
    fn new(input: &ReportInput<'a>) -> Self {
        let quality = &input.profile.quality;
        Self {
            samples: quality.samples,
            lost: &quality.lost,
            untracked_frees: (!input.profile.info.is_partial()).then_some(quality.untracked_frees),
            failed_allocations: quality.failed_allocations,
            stacks_complete: quality.stacks_complete,
            stacks_truncated: quality.stacks_truncated,
            stacks_broken: quality.stacks_broken,
            frames_unsymbolized: input.unsymbolized(),
            noted: &quality.noted,
            unprobed: &quality.unprobed,
            without_tables: &quality.without_tables,
            unreadable: &quality.unreadable,
            kernel_map_bytes: quality.kernel_map_bytes,
            agent_cpu_ns: quality.agent_cpu_ns,
            agent_peak_bytes: quality.agent_peak_bytes,
            probe_hit_ns: non_zero(quality.hit_ns),
            max_overhead_percent: non_zero(quality.max_overhead.into())
                .and(Some(f64::from(quality.max_overhead) / 100.0)),
        }
    }
}

impl<'a> Process<'a> {
    fn new(process: &'a join::Process, info: &RunInfo) -> Self {
        let names = CgroupNames::of(&process.cgroup);
        Self {
            pid: process.pid,
            command: &process.command,
            cgroup: &process.cgroup,
            ended: process.ended,
            totals: Counters::new(&process.totals, info.mode.is_sampled()),
            allocators: process
                .allocators
                .iter()
                .map(|allocator| Allocator {
                    path: &allocator.path,
                    kind: &allocator.kind,
                    hooks: &allocator.hooks,
                })
                .collect(),
            start_time_ns: process.start_time_ns,
            untracked_frees: (!info.is_partial()).then_some(process.untracked_frees),
            failed_allocations: process.failed_allocations,
            lost: process.lost,
            merged: process.merged,
            command_line: &process.command_line,
            container: names.container.map(|it| Container {
                runtime: it.runtime,
                id: it.id,
            }),
            pod: names.pod,
            unit: names.unit,
            slice: names.slice,
            probed_in_turns: process.duty_cycle.map(|duty_cycle| DutyCycle {
                from_ns: duty_cycle.from_ns,
                unprobed_ns: duty_cycle.unprobed_ns,
                overhead_percent: f64::from(duty_cycle.overhead) / 100.0,
            }),
        }
    }
}

/// The number, or `None` if it is zero.
fn non_zero(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

/// The size classes that have calls.
fn sizes(counts: &[u64]) -> Vec<SizeClass> {
    let powers = (0..64).map(|power: u32| (1 << power, u64::MAX >> (63 - power)));
    std::iter::once((0, 0))
        .chain(powers)
        .zip(counts)
        .filter(|(_, calls)| **calls > 0)
        .map(|((min, max), calls)| SizeClass {
            min,
            max,
            calls: *calls,
        })
        .collect()
}

/// All sites, the largest live bytes first. Each is built while it is written.
struct Sites<'a>(&'a ReportInput<'a>);

impl Serialize for Sites<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(input) = self;
        let mut sites: Vec<&join::Site> = input.profile.sites.iter().collect();
        sites.sort_by_key(|site| std::cmp::Reverse(Metric::LiveBytes.of(&site.totals)));
        serializer.collect_seq(sites.into_iter().map(|site| Site::new(input, site)))
    }
}

impl<'a> Site<'a> {
    fn new(input: &'a ReportInput<'a>, site: &join::Site) -> Self {
        let is_sampled = input.profile.info.mode.is_sampled();
        Self {
            pid: input.process(site).map_or(0, |process| process.pid),
            totals: SiteTotals {
                counters: Counters::new(&site.totals, is_sampled),
                // Always present; a sampled run has it among the other errors.
                live_bytes_error: (!is_sampled).then_some(0),
                is_significant: is_sampled.then(|| Metric::LiveBytes.is_significant(&site.totals)),
            },
            stack: Stack(input, site.stack),
            stack_end: input.completeness(site.stack).1,
            thread: input.thread(site),
            kind: (site.kind != Kind::Heap).then(|| kind_name(site.kind)),
        }
    }
}

/// A stack that is built while it is written. All stacks together would use far more memory than the profile.
struct Stack<'a>(&'a ReportInput<'a>, join::StackId);

impl Serialize for Stack<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(input, id) = self;
        serializer.collect_seq(input.stack(*id).into_iter().map(|frame| Frame {
            function: frame.function.unwrap_or_default(),
            module: frame.module.map_or("", |module| module.path.as_str()),
            file: frame.file.unwrap_or_default(),
            line: frame.line,
            inlined: frame.inlined,
            address: format!("{:#x}", frame.address),
        }))
    }
}

/// The requested groups, the largest first.
fn groups<'a>(input: &'a ReportInput<'a>, grouping: Grouping) -> Vec<Group<'a>> {
    let is_sampled = input.profile.info.mode.is_sampled();
    let (groups, _) = super::groups::groups(input, grouping);
    groups
        .into_iter()
        .map(|group| Group {
            name: group.name,
            totals: Counters::new(&group.totals, is_sampled),
            cumulative: group
                .cumulative
                .as_ref()
                .map(|totals| Counters::new(totals, is_sampled)),
            sites: group.sites,
            processes: group.processes,
            stack: group.stack.map(|id| Stack(input, id)),
        })
        .collect()
}

/// Escapes also characters that JSON allows but a terminal acts on. JSON readers get the same text, and it is
/// harmless to print.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(text::is_unsafe) {
            let (safe, tail) = rest.split_at(at);
            CompactFormatter.write_string_fragment(writer, safe)?;
            let Some(c) = tail.chars().next() else { break };
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &tail[c.len_utf8()..];
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}
