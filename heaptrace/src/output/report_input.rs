//! The input of every format: a profile, its symbols and its warnings.
//!
//! Stage: output. Joins sites, stacks, locations and names. Must not know any format.

use std::collections::{HashMap, HashSet};

use super::filter::Filter;
use super::frame::StackFrame;
use super::grouping::Grouping;
use super::label::{Label, kind_name};
use super::metric::Metric;
use super::sum;
use crate::join::{Completeness, Kind, LocationId, Process, RateChange, Site, StackId, Totals};
use crate::profile::{Mode, Profile, Symbols};
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
}

impl<'a> ReportInput<'a> {
    /// An input without warnings, filters and grouping.
    pub fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        Self {
            profile,
            symbols,
            warnings: &[],
            filters: &[],
            grouping: None,
        }
    }

    /// The filters as one text, if there are any: `only process=sh and function=main`. Safe to print.
    pub(super) fn only(&self) -> Option<String> {
        let filters: Vec<_> = self.filters.iter().map(ToString::to_string).collect();
        let words = format!("only {}", filters.join(" and "));
        (!filters.is_empty()).then(|| text::escape(&words).into_owned())
    }

    /// The sites with a non-zero value, the largest first.
    pub(super) fn sites_by(&self, metric: Metric) -> Vec<(&'a Site, u64)> {
        let mut sites: Vec<_> = self
            .profile
            .sites
            .iter()
            .map(|site| (site, metric.of(&site.totals)))
            .filter(|(_, value)| *value > 0)
            .collect();
        // The sort is stable, so equal sites stay in order of appearance.
        sites.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
        sites
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
        let sites = self.profile.sites.iter();
        let mut mapped = sites.filter(|site| site.kind == Kind::Mapped).peekable();
        mapped.peek()?;
        let mut totals = Totals::default();
        mapped.for_each(|site| sum::add(&mut totals, &site.totals));
        Some(totals)
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
    let Mode::Sampled { mean_bytes } = profile.info.mode else {
        return Vec::new();
    };
    let first = RateChange {
        at_ns: 0,
        process: None,
        mean_bytes,
    };
    let changes: Vec<_> = std::iter::once(&first)
        .chain(&profile.rates)
        .copied()
        .collect();
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
