//! The input of every format: a profile, its symbols and its warnings.
//!
//! Stage: output. Joins sites, stacks, locations and names. Must not know any format.

use std::collections::{HashMap, HashSet};

use super::filter::Filter;
use super::frame::StackFrame;
use super::grouping::Grouping;
use super::label::{Label, kind_name};
use super::metric::Metric;
use super::own_peaks::has_own_peaks;
use super::sum;
use super::wrappers::{self, Wrappers};
use crate::join::{Completeness, Kind, LocationId, Process, Site, StackId, Totals};
use crate::profile::{Profile, Symbols};
use crate::text;

/// A profile that is ready to be written.
#[derive(Clone, Copy, Debug)]
pub struct ReportInput<'a> {
    /// The profile of the run.
    pub profile: &'a Profile,
    /// Names of its locations.
    pub symbols: &'a Symbols,
    /// Warnings to show first, e.g. that the data file is incomplete.
    pub warnings: &'a [String],
    /// The filters that were applied to the profile.
    pub filters: &'a [Filter],
    /// The requested grouping of sites.
    pub grouping: Option<Grouping>,
    /// The functions that are not shown as the ones that allocate.
    pub wrappers: &'a Wrappers,
}

impl<'a> ReportInput<'a> {
    /// An input without warnings, filters and grouping, and with the usual wrappers.
    pub fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        Self {
            profile,
            symbols,
            warnings: &[],
            filters: &[],
            grouping: None,
            wrappers: &wrappers::LISTED,
        }
    }

    /// Whether filters chose processes, so that bytes at the peak are those at the peak of each process.
    pub(super) fn peaks_are_own(&self) -> bool {
        self.filters.iter().any(Filter::is_of_process) && has_own_peaks(self.profile)
    }

    /// The filters as one text, if there are any: `only process=sh and function=main`. Safe to print.
    pub(super) fn only(&self) -> Option<String> {
        let filters: Vec<_> = self.filters.iter().map(ToString::to_string).collect();
        let own = if self.peaks_are_own() {
            "; peaks are those of each process, at its own time"
        } else {
            ""
        };
        let words = format!("only {}{own}", filters.join(" and "));
        (!filters.is_empty()).then(|| text::escape(&words).into_owned())
    }

    /// The sites with their values, the largest first, without those whose value is zero for certain.
    pub(super) fn sites_by(&self, metric: Metric) -> Vec<(&'a Site, u64)> {
        let sites = self.profile.sites.iter();
        let mut sites: Vec<_> = sites.filter(|site| metric.rank(&site.totals) > 0).collect();
        // The sort is stable, so equal sites stay in order of appearance.
        sites.sort_by_key(|site| std::cmp::Reverse(metric.rank(&site.totals)));
        let value = |site: &'a Site| (site, metric.of(&site.totals));
        sites.into_iter().map(value).collect()
    }

    /// The process of a site.
    pub(super) fn process(&self, site: &Site) -> Option<&'a Process> {
        self.profile.processes.get(site.process.0 as usize)
    }

    /// The name of a site's thread, if it was recorded.
    pub(super) fn thread(&self, site: &Site) -> Option<&'a str> {
        let name = self.profile.threads.get(site.thread?.0 as usize)?;
        Some(name.as_str())
    }

    /// A name of the caller: its thread, its process, or the group that the process belongs to.
    pub(super) fn caller(&self, site: &Site, label: Label) -> Option<String> {
        match label {
            Label::Kind => Some(kind_name(site.kind).to_owned()),
            Label::Thread => self.thread(site).map(ToOwned::to_owned),
            label => label.of_process(self.process(site)?),
        }
    }

    /// The part of the totals that is mapped memory, if there is any.
    pub(super) fn mapped(&self) -> Option<Totals> {
        let mut sites = self.profile.sites.iter();
        sites
            .any(|site| site.kind == Kind::Mapped)
            .then(|| self.of_kind(Kind::Mapped))
    }

    /// The part of the totals that is memory of a kind. Its peak is its part of the run's peak.
    pub fn of_kind(&self, kind: Kind) -> Totals {
        let mut totals = Totals::default();
        if kind == Kind::Mapped {
            // Every mapping is recorded, so none at all is no estimate.
            totals.errors.mean_bytes = 1;
        }
        let sites = self.profile.sites.iter();
        sites
            .filter(|site| site.kind == kind)
            .for_each(|site| sum::add(&mut totals, &site.totals));
        totals
    }

    /// The live bytes of each process, in the order of the processes.
    pub fn live_by_kind(&self) -> Vec<LiveByKind> {
        let mut live = vec![LiveByKind::default(); self.profile.processes.len()];
        for site in &self.profile.sites {
            if let Some(live) = live.get_mut(site.process.0 as usize) {
                let sum = match site.kind {
                    Kind::Heap => &mut live.heap,
                    Kind::Mapped => &mut live.mapped,
                };
                *sum = sum.saturating_add(site.totals.live_bytes);
            }
        }
        // Estimates of sites are rounded one by one. The parts must add up to the whole.
        for (live, process) in live.iter_mut().zip(&self.profile.processes) {
            live.heap = process.totals.live_bytes.saturating_sub(live.mapped);
        }
        live
    }

    /// What to know of mapped memory where it is a large part of what is live: arenas of a program's own allocator
    /// count at the call that needed a new one, which may keep nothing.
    pub fn about_mapped(&self) -> Option<[&'static str; 2]> {
        const LEAST: u64 = 1 << 20;
        const LARGE_PART: u64 = 4;
        let live = self.profile.totals.live_bytes;
        let mapped = self.of_kind(Kind::Mapped).live_bytes;
        if mapped < LEAST || mapped < live / LARGE_PART {
            return None;
        }
        let mut running = self.profile.processes.iter().filter(|it| !it.ended);
        Some(if running.any(|it| it.command.starts_with("python")) {
            [
                "arenas of Python count at the call that needed a new one;",
                "to see each object, start the program with PYTHONMALLOC=malloc",
            ]
        } else {
            [
                "if these are arenas of an allocator, each counts at the call",
                "that needed a new one, and not where its blocks are used",
            ]
        })
    }

    /// The resident memory of the running processes together. Memory that they share counts for each.
    pub fn resident(&self) -> u64 {
        let processes = self.profile.processes.iter();
        processes.fold(0, |sum, it| sum.saturating_add(it.memory.resident))
    }

    /// The code addresses of a stack, innermost first.
    pub(super) fn locations(&self, stack: StackId) -> &'a [LocationId] {
        self.profile
            .stacks
            .get(stack.0 as usize)
            .map_or(&[], |stack| stack.locations.as_slice())
    }

    /// The functions of a stack, innermost first.
    pub(super) fn stack(&self, stack: StackId) -> Vec<StackFrame<'a>> {
        self.locations(stack)
            .iter()
            .flat_map(|location| self.frames(*location))
            .collect()
    }

    /// The index of the user's function in a stack: the innermost one that is no allocator wrapper.
    pub(super) fn user_frame(&self, stack: &[StackFrame<'_>]) -> usize {
        wrappers::user_frame(stack.iter().map(|frame| self.wrappers.part(frame)))
    }

    /// The names of at most `most` functions of a stack, beginning with the user's function. Safe to print.
    pub fn user_functions(&self, stack: StackId, most: usize) -> Vec<String> {
        let frames = self.stack(stack);
        let shown = frames.iter().skip(self.user_frame(&frames)).take(most);
        shown.map(StackFrame::label).collect()
    }

    /// The functions at a location, innermost first; one without a name if no symbol is known.
    pub(super) fn frames(&self, id: LocationId) -> Vec<StackFrame<'a>> {
        let location = self.profile.locations.get(id.0 as usize);
        let module = location
            .and_then(|location| location.module)
            .and_then(|module| self.profile.modules.get(module.0 as usize));
        let unknown = StackFrame {
            location: id,
            function: None,
            module,
            address: location.map_or(0, |location| location.address),
            file: None,
            line: 0,
            inlined: false,
        };
        let known = self.symbols.frames(id);
        if known.is_empty() {
            return vec![unknown];
        }
        let text = |id| Some(self.symbols.text(id)).filter(|text| !text.is_empty());
        known
            .iter()
            .map(|frame| StackFrame {
                function: frame.function.and_then(text),
                file: frame.file.and_then(text),
                line: frame.line,
                inlined: frame.inlined,
                ..unknown
            })
            .collect()
    }

    /// The completeness of a stack, and its name.
    pub(super) fn completeness(&self, stack: StackId) -> (Completeness, &'static str) {
        let stack = self.profile.stacks.get(stack.0 as usize);
        match stack.map_or(Completeness::Broken, |stack| stack.completeness) {
            it @ Completeness::Complete => (it, "complete"),
            it @ Completeness::Truncated => (it, "truncated"),
            it @ Completeness::Broken => (it, "broken"),
        }
    }

    /// The number of code addresses in the sites' stacks that have no name.
    pub(super) fn unsymbolized(&self) -> u64 {
        let locations: HashSet<LocationId> = self
            .profile
            .sites
            .iter()
            .flat_map(|site| self.locations(site.stack))
            .copied()
            .collect();
        let nameless = locations.into_iter().filter(|id| {
            self.frames(*id)
                .iter()
                .all(|frame| frame.function.is_none())
        });
        nameless.count() as u64
    }
}

/// The live bytes of a process, by kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveByKind {
    /// Blocks of allocators.
    pub heap: u64,
    /// Memory that the program itself mapped.
    pub mapped: u64,
}

/// A period of a run with its sampling rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch<'a> {
    /// The begin, in nanoseconds since the start of the run.
    pub(super) from_ns: u64,
    /// The end, in nanoseconds since the start of the run.
    pub(super) to_ns: u64,
    /// The process with this rate; `None` for all processes without a rate of their own.
    pub(super) process: Option<&'a Process>,
    /// The mean number of bytes between samples.
    pub(super) mean_bytes: u64,
}

/// The periods and their sampling rates, in order of their begin; the first has the rate of the run. Empty if
/// every allocation was recorded.
pub(super) fn rates(profile: &Profile) -> Vec<Stretch<'_>> {
    let changes = profile.all_rates();
    // A rate lasts until the next change for the same process, so changes are visited backwards.
    let mut ends = HashMap::new();
    let mut stretches: Vec<_> = changes
        .iter()
        .rev()
        .map(|change| Stretch {
            from_ns: change.at_ns,
            to_ns: ends
                .insert(change.process, change.at_ns)
                .unwrap_or(profile.duration_ns),
            process: change
                .process
                .and_then(|id| profile.processes.get(id.0 as usize)),
            mean_bytes: change.mean_bytes,
        })
        .collect();
    stretches.reverse();
    stretches
}

/// A process as people write it: `server (42)`. Safe to print.
pub(super) fn process_label(process: &Process) -> String {
    let command = text::escape(&process.command);
    match process.merged {
        0 => format!("{command} ({})", process.pid),
        many => format!("{command} ({} ended)", text::count(many)),
    }
}
