//! The report for programs: JSON, schema 1.
//!
//! Stage: output. Field names and their order are stable. Fields can be added, but never changed.

mod block_type;
mod end;
mod head;
mod moments;
mod quality;
mod rate;
mod stack;
mod usage;

use std::io::Write;

use serde::{Serialize, Serializer};

use super::cgroup::CgroupNames;
use super::counters::Counters;
use super::error::OutputError;
use super::grouping::Grouping;
use super::interval::Intervals;
use super::json_escaping::write_line;
use super::label::kind_name;
use super::metric::Metric;
use super::rates::rates;
use super::report_input::{LiveByKind, ReportInput};
use crate::join::{self, Kind};
use crate::profile::{self, Profile, RunEnd};
use block_type::BlockSizes;
pub(super) use block_type::BlockType;
use end::{End, KilledAt};
pub(super) use head::{Head, Mode, Remarks};
use moments::Exceeded;
pub(super) use moments::Moment;
use quality::Quality;
use rate::Rate;
pub(super) use stack::Stack;
use stack::{KnownFrames, OneOfMany};
use usage::Usage;

/// Writes the whole report, with all sites, as one line.
pub(super) fn write(input: &ReportInput<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
    let profile = input.profile;
    let intervals = &Intervals::of(profile);
    let report = Report {
        head: Head::of(input),
        kernel: &profile.info.kernel,
        started_unix_ns: profile.info.started_unix_ns,
        range: profile.range.map(Into::into),
        end: match profile.end {
            RunEnd::Orderly => "orderly",
            RunEnd::CutOff => "cut-off",
            RunEnd::WentOn => "went-on",
        },
        remarks: Remarks::of(input),
        since_mark: input.since.map(|mark| Since {
            number: mark.number,
            at_ns: mark.at_ns,
        }),
        totals: Counters::new(&profile.totals, intervals),
        kinds: Kinds {
            heap: Counters::new(&input.of_kind(Kind::Heap), intervals),
            mapped: Counters::new(&input.of_kind(Kind::Mapped), intervals),
        },
        mapped: input
            .mapped()
            .map(|totals| Counters::new(&totals, intervals)),
        quality: Quality::new(input),
        processes: profile
            .processes
            .iter()
            .zip(input.live_by_kind())
            .map(|(process, live)| Process::new(process, &live, profile, intervals))
            .collect(),
        sites: Sites(input, intervals),
        sizes: sizes(&profile.sizes),
        rates: rates(profile).iter().map(Rate::new).collect(),
        exceeded: Exceeded::all(input),
        group_by: input.grouping.map(|grouping| grouping.by.name()),
        groups_skip_wrappers: input
            .grouping
            .filter(|grouping| grouping.by.is_of_stack())
            .map(|_| !input.wrappers.are_shown()),
        groups: input
            .grouping
            .map(|grouping| groups(input, grouping, intervals)),
    };
    Ok(write_line(&report, out)?)
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    kernel: &'a str,
    started_unix_ns: u64,
    /// The part of the run that the numbers are of, if not the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<Range>,
    end: &'static str,
    #[serde(flatten)]
    remarks: Remarks<'a>,
    /// The mark since which everything was allocated that is in the report. It has no peaks then: they are 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_mark: Option<Since>,
    totals: Counters,
    /// The totals by kind of memory.
    kinds: Kinds,
    /// The part of the totals that is mapped memory, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    mapped: Option<Counters>,
    quality: Quality<'a>,
    processes: Vec<Process<'a>>,
    sites: Sites<'a>,
    sizes: Vec<SizeClass>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rates: Vec<Rate>,
    /// Limits of live memory that were exceeded (`--when-live-exceeds`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exceeded: Vec<Exceeded<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_by: Option<&'static str>,
    /// Whether groups of functions, lines and modules leave out the frames before each site's `user_frame`.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups_skip_wrappers: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<Group<'a>>>,
}

/// A mark.
#[derive(Serialize)]
struct Since {
    number: u32,
    at_ns: u64,
}

/// A range of sizes that are counted together, both ends included.
#[derive(Serialize)]
struct SizeClass {
    min: u64,
    max: u64,
    calls: u64,
}

/// A part of a run, between two of its snapshots.
#[derive(Serialize)]
pub(super) struct Range {
    from_ns: u64,
    to_ns: u64,
    /// Whether the peak is the most at a snapshot, as the peak of the run was before.
    peak_is_least: bool,
}

impl From<profile::Range> for Range {
    fn from(range: profile::Range) -> Self {
        Self {
            from_ns: range.from_ns,
            to_ns: range.to_ns,
            peak_is_least: range.peak_is_least,
        }
    }
}

#[derive(Serialize)]
struct Kinds {
    heap: Counters,
    mapped: Counters,
}

/// The memory of a process, in bytes; resident memory as the kernel counts it.
#[derive(Serialize)]
struct ProcessMemory {
    resident: u64,
    peak_resident: u64,
    heap_live: u64,
    mapped_live: u64,
    /// Heap and mapped memory together, at their highest moment.
    peak_live: u64,
    /// Resident memory when tracing began; 0 for a process that started later.
    resident_before: u64,
}

/// From when to when a process was traced, and for how long it had run before.
#[derive(Serialize)]
struct Traced {
    from_ns: u64,
    to_ns: u64,
    age_ns: u64,
}

/// The duty cycle of a process that was paused at times.
#[derive(Serialize)]
struct DutyCycle {
    from_ns: u64,
    unprobed_ns: u64,
    overhead_percent: f64,
    reached_percent: f64,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    command: &'a str,
    cgroup: &'a str,
    ended: bool,
    totals: Counters,
    memory: ProcessMemory,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    traced: Option<Traced>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<End>,
    #[serde(skip_serializing_if = "Option::is_none")]
    killed_at: Option<KilledAt<'a>>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    probed_in_turns: Option<Covered>,
    /// The name by which a module was started as a program; absent if it is the file's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    module_name: Option<String>,
    /// The source file of a function that an interpreter runs; absent for machine code, and if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

/// How long the paused processes of a group were probed, since each was first paused.
#[derive(Serialize)]
struct Covered {
    probed_ns: u64,
    since_ns: u64,
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
    stack: OneOfMany<'a>,
    stack_end: &'static str,
    /// The index of the first frame that is no allocator wrapper.
    user_frame: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'a str>,
    /// Absent for allocator blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(flatten)]
    usage: Option<Usage>,
    /// The smallest and the largest requested size of its recorded blocks since the run began. Absent for mappings, and in older files.
    #[serde(skip_serializing_if = "Option::is_none")]
    block_sizes: Option<BlockSizes>,
    /// Absent where it is unknown.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    block_type: Option<BlockType<'a>>,
}

#[derive(Serialize)]
struct SiteTotals {
    #[serde(flatten)]
    counters: Counters,
    #[serde(skip_serializing_if = "Option::is_none")]
    live_bytes_error: Option<u64>,
    /// Live bytes at the peak of the site's process; `peak_live_bytes` is at the peak of the run, unless processes are
    /// filtered.
    own_peak_live_bytes: u64,
    /// Whether the live bytes are larger than chance can explain.
    #[serde(
        rename = "live_bytes_significant",
        skip_serializing_if = "Option::is_none"
    )]
    is_significant: Option<bool>,
}

impl<'a> Process<'a> {
    fn new(
        process: &'a join::Process,
        live: &LiveByKind,
        profile: &Profile,
        intervals: &Intervals,
    ) -> Self {
        let (info, run_ns) = (&profile.info, profile.duration_ns);
        let memory = &process.memory;
        let names = CgroupNames::of(&process.cgroup);
        Self {
            pid: process.pid,
            command: &process.command,
            cgroup: &process.cgroup,
            ended: process.ended,
            totals: Counters::new(&process.totals, &intervals.of_process(process)),
            memory: ProcessMemory {
                resident: memory.resident,
                peak_resident: memory.peak_resident,
                heap_live: live.heap,
                mapped_live: live.mapped,
                peak_live: process.totals.peak_live_bytes,
                resident_before: memory.resident_before,
            },
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
                reached_percent: f64::from(duty_cycle.reached) / 100.0,
            }),
            traced: process.traced.map(|traced| Traced {
                from_ns: traced.from_ns,
                to_ns: traced.to_ns.unwrap_or(run_ns),
                age_ns: traced.age_ns,
            }),
            end: process.end.map(End::from),
            killed_at: process.killed_at.as_ref().map(KilledAt::from),
        }
    }
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

/// All sites, the largest first. Each is built while it is written.
struct Sites<'a>(&'a ReportInput<'a>, &'a Intervals);

impl Serialize for Sites<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(input, intervals) = self;
        let mut sites: Vec<&join::Site> = input.profile.sites.iter().collect();
        let metric = Metric::usual(input.profile);
        sites.sort_by_key(|site| std::cmp::Reverse(metric.rank(&site.totals)));
        let known = KnownFrames::default();
        serializer.collect_seq(
            sites
                .into_iter()
                .map(|site| Site::new(input, site, intervals, &known)),
        )
    }
}

impl<'a> Site<'a> {
    fn new(
        input: &'a ReportInput<'a>,
        site: &join::Site,
        intervals: &Intervals,
        known: &'a KnownFrames,
    ) -> Self {
        let is_sampled = intervals.are_of_a_sample();
        let process = input.process(site);
        let own = process.map_or_else(|| intervals.clone(), |it| intervals.of_process(it));
        Self {
            pid: process.map_or(0, |it| it.pid),
            totals: SiteTotals {
                counters: Counters::new(&site.totals, &own),
                // Always present; a sampled run has it among the other errors.
                live_bytes_error: (!is_sampled).then_some(0),
                own_peak_live_bytes: site.own_peak.bytes,
                is_significant: is_sampled.then(|| Metric::LiveBytes.is_significant(&site.totals)),
            },
            stack: OneOfMany {
                input,
                stack: site.stack,
                known,
            },
            stack_end: input.completeness(site.stack).1,
            user_frame: input.user_frame(site.stack, &input.stack(site.stack)),
            thread: input.thread(site),
            kind: (site.kind != Kind::Heap).then(|| kind_name(site.kind)),
            usage: input
                .profile
                .usage(site)
                .map(|it| Usage::new(it, site.kind, is_sampled)),
            // Those of chosen blocks are not known.
            block_sizes: match input.chosen_blocks {
                Some(_) => None,
                None => site.block_sizes.map(Into::into),
            },
            block_type: BlockType::of(input, site),
        }
    }
}

/// The requested groups, the largest first; also those whose value is zero.
fn groups<'a>(
    input: &'a ReportInput<'a>,
    grouping: Grouping,
    intervals: &Intervals,
) -> Vec<Group<'a>> {
    let mut groups = super::groups::all_groups(input, grouping);
    super::groups::keep_top(&mut groups, grouping);
    groups
        .into_iter()
        .map(|group| Group {
            name: group.name,
            totals: Counters::new(&group.totals, intervals),
            cumulative: group
                .cumulative
                .as_ref()
                .map(|totals| Counters::new(totals, intervals)),
            sites: group.sites,
            processes: group.processes,
            stack: group.stack.map(|id| Stack(input, id)),
            probed_in_turns: group.covered.map(|it| Covered {
                probed_ns: it.probed_ns,
                since_ns: it.since_ns,
            }),
            module_name: group.module_name,
            file: group.source.filter(|file| !file.is_empty()),
        })
        .collect()
}
