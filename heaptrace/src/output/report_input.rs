//! What every format reads: a profile, its symbols and what to warn of.
//!
//! Stage: output. Joins sites, stacks, locations and names; knows nothing of any format.

use std::collections::{HashMap, HashSet};

use super::filter::Filter;
use super::frame::StackFrame;
use super::grouping::Grouping;
use super::label::{Label, kind_name};
use super::metric::Metric;
use super::sum;
use crate::join::{
    Completeness, Kind, LocationId, Process, RateChange, Site, StackId, Totals,
};
use crate::profile::{Mode, Profile, Symbols};
use crate::text;

/// A profile, ready to be written.
#[derive(Clone, Copy, Debug)]
pub struct ReportInput<'a> {
    /// What the run found.
    pub profile: &'a Profile,
    /// Names of its locations.
    pub symbols: &'a Symbols,
    /// What a reader should know first, e.g. that the data file is incomplete.
    pub warnings: &'a [String],
    /// The filters that the profile has passed.
    pub filters: &'a [Filter],
    /// What sites are put together by, where that is asked for.
    pub grouping: Option<Grouping>,
}

impl<'a> ReportInput<'a> {
    /// ReportInput with nothing to warn of.
    pub fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        Self {
            profile,
            symbols,
            warnings: &[],
            filters: &[],
            grouping: None,
        }
    }

    /// The filters in a few words, if there are any: `only process=sh and function=main`. Safe to
    /// print.
    pub(super) fn only(&self) -> Option<String> {
        let filters: Vec<_> = self.filters.iter().map(ToString::to_string).collect();
        let words = format!("only {}", filters.join(" and "));
        (!filters.is_empty()).then(|| text::escape(&words).into_owned())
    }

    /// The sites where this metric is not zero, the largest first.
    pub(super) fn sites_by(&self, metric: Metric) -> Vec<(&'a Site, u64)> {
        let mut sites: Vec<_> = self
            .profile
            .sites
            .iter()
            .map(|site| (site, metric.of(&site.totals)))
            .filter(|(_, value)| *value > 0)
            .collect();
        // Stable, so that equal ones keep the order in which they appeared.
        sites.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
        sites
    }

    /// The process of a site.
    pub(super) fn process(&self, site: &Site) -> Option<&'a Process> {
        self.profile.processes.get(site.process.0 as usize)
    }

    /// The name of a site's thread, where it was recorded.
    pub(super) fn thread(&self, site: &Site) -> Option<&'a str> {
        let name = self.profile.threads.get(site.thread?.0 as usize)?;
        Some(name.as_str())
    }

    /// The name of whoever called: a thread, a process, or where that one belongs.
    pub(super) fn caller(&self, site: &Site, label: Label) -> Option<String> {
        match label {
            Label::Kind => Some(kind_name(site.kind).to_owned()),
            Label::Thread => self.thread(site).map(ToOwned::to_owned),
            label => label.of_process(self.process(site)?),
        }
    }

    /// What of the totals is mapped memory, where there is any.
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

    /// The functions at a location, innermost first; one without a name where none is known.
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

    /// How far a stack goes, and the word for it.
    pub(super) fn completeness(&self, stack: StackId) -> (Completeness, &'static str) {
        let stack = self.profile.stacks.get(stack.0 as usize);
        match stack.map_or(Completeness::Broken, |stack| stack.completeness) {
            it @ Completeness::Complete => (it, "complete"),
            it @ Completeness::Truncated => (it, "truncated"),
            it @ Completeness::Broken => (it, "broken"),
        }
    }

    /// How many code addresses of the sites' stacks have no name.
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

/// A stretch of a run over which a sampling rate ruled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch<'a> {
    /// Nanoseconds since the run began.
    pub(super) from_ns: u64,
    /// The same, of its end.
    pub(super) to_ns: u64,
    /// The process whose rate it was; `None` for all that had none of their own.
    pub(super) process: Option<&'a Process>,
    /// Mean bytes between samples.
    pub(super) mean_bytes: u64,
}

/// Over which stretches which sampling rate ruled, in the order in which they began; the first is that of
/// the run. Empty where every allocation was recorded.
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
    // Each goes on until the next change for the same process, so they are gone through backwards.
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

/// A process as people name it: `server (42)`. Safe to print.
pub(super) fn process_label(process: &Process) -> String {
    let command = text::escape(&process.command);
    match process.merged {
        0 => format!("{command} ({})", process.pid),
        many => format!("{command} ({} ended)", text::count(many)),
    }
}
