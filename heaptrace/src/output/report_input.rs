//! The input of every format: a profile, its symbols and its warnings.
//!
//! Stage: output. Joins sites, stacks, locations and names. Must not know any format.

use std::borrow::Cow;
use std::collections::HashSet;

use super::chosen_blocks::ChosenBlocks;
use super::filter::{Filter, together};
use super::frame::{FunctionLabel, StackFrame};
use super::grouping::Grouping;
use super::interpreted::Interpreted;
use super::label::{Label, kind_name};
use super::metric::Metric;
use super::own_peaks::has_own_peaks;
use super::shown::{ShownLanguages, hidden_label, language_of};
use super::wrappers::{self, Part, Wrappers};
use super::{readable, shorten, sum};
use crate::join::{
    Completeness, FunctionId, Kind, Language, LocationId, Mark, Module, Process, ProcessId, Site,
    StackId, Totals,
};
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
    /// The mark since which everything was allocated that the profile has.
    pub since: Option<Mark>,
    /// What was chosen, if the filters chose single blocks.
    pub chosen_blocks: Option<ChosenBlocks>,
    /// The requested grouping of sites.
    pub grouping: Option<Grouping>,
    /// The functions that are not shown as the ones that allocate.
    pub wrappers: &'a Wrappers,
    /// The languages whose frames are shown.
    pub shown: ShownLanguages,
    /// Whether people, too, get names as compilers have them. Programs always do.
    pub full_names: bool,
    /// Whether stacks have the type of the block as their innermost frame, where a format asks for that.
    pub with_types: bool,
}

impl<'a> ReportInput<'a> {
    /// An input without warnings, filters and grouping, and with the usual wrappers.
    pub fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        Self {
            profile,
            symbols,
            warnings: &[],
            filters: &[],
            since: None,
            chosen_blocks: None,
            grouping: None,
            wrappers: &wrappers::LISTED,
            shown: ShownLanguages::default(),
            full_names: false,
            with_types: false,
        }
    }

    /// The name of a function of machine code for people, not escaped.
    pub fn for_people<'n>(&self, name: &'n str) -> Cow<'n, str> {
        readable::for_people(name, self.full_names)
    }

    /// A frame's name for people. Safe to print.
    pub(super) fn label(&self, frame: &StackFrame<'_>) -> String {
        match frame.language {
            None => text::escape(&self.for_people(&frame.name())).into_owned(),
            Some(_) => frame.label(),
        }
    }

    /// A function's name in at most `width` characters, unless all names are shown in full.
    pub fn fitted(&self, name: &str, width: usize) -> String {
        match self.full_names {
            true => name.to_owned(),
            false => shorten::function(name, width),
        }
    }

    /// Whether filters chose processes, so that bytes at the peak are those at the peak of each process.
    pub(super) fn peaks_are_own(&self) -> bool {
        self.has_peaks()
            && self.filters.iter().any(Filter::selects_processes)
            && has_own_peaks(self.profile)
    }

    /// Whether bytes at the peak are known: when most of what was allocated since a mark, or of chosen blocks, was live is not.
    pub(super) fn has_peaks(&self) -> bool {
        self.since.is_none() && self.chosen_blocks.is_none()
    }

    /// Whether what was freed is known.
    pub(super) fn has_freed(&self) -> bool {
        self.chosen_blocks.is_none_or(|it| it.has_freed)
    }

    /// The filters as one text, if there are any: `only process=sh and function=main`. Safe to print.
    pub fn only_matching(&self) -> Option<String> {
        let filters = together(self.filters);
        (!filters.is_empty()).then(|| format!("only {}", text::escape(&filters)))
    }

    /// The range, the mark, the filters and the languages as one text, if any were chosen, with what to know of them. Safe to print.
    pub(super) fn only(&self) -> Option<String> {
        let sizes = self.filters.iter().any(Filter::is_of_sizes);
        let sizes = sizes.then(|| {
            if self.chosen_blocks.is_some() {
                return "size is that of each block".to_owned();
            }
            let estimate = match self.profile.info.mode.is_sampled() {
                true => ", which a sample estimates",
                false => "",
            };
            format!("size is the mean of the blocks of each stack{estimate}")
        });
        let own = self.peaks_are_own();
        let own = own.then(|| "peaks are those of each process, at its own time".to_owned());
        let range = self.profile.range.map(|range| {
            let (from, to) = (text::duration(range.from_ns), text::duration(range.to_ns));
            format!("only from {from} to {to} of the run (nearest snapshots)")
        });
        let since = self.since.map(|mark| {
            let at = text::duration(mark.at_ns);
            format!(
                "only what was allocated since mark {}, {at} into the run",
                mark.number
            )
        });
        let chosen = [
            range,
            since,
            self.only_matching(),
            sizes,
            own,
            self.shown.words(self.profile),
        ]
        .into_iter()
        .flatten();
        let chosen: Vec<_> = chosen.collect();
        (!chosen.is_empty()).then(|| chosen.join("; "))
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

    /// The pid and the name of a process.
    pub(super) fn pid_and_command(&self, id: ProcessId) -> (u32, &'a str) {
        let process = self.profile.processes.get(id.0 as usize);
        process.map_or((0, ""), |it| (it.pid, it.command.as_str()))
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
            Label::Type => Some(self.type_name(site).to_owned()),
            Label::Element => Some(self.element_name(site).to_owned()),
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
        let sites = self.profile.sites.iter();
        let mut totals = sum::of(sites.filter(|it| it.kind == kind).map(|it| &it.totals));
        if kind == Kind::Mapped {
            // Every mapping is recorded, so none at all is no estimate.
            totals.errors.mean_bytes = totals.errors.mean_bytes.max(1);
        }
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

    /// The locations of a stack that are shown, innermost first.
    pub(super) fn locations(&self, stack: StackId) -> Cow<'a, [LocationId]> {
        let locations = self.all_locations(stack);
        self.shown.of_stack(self.profile, self.symbols, locations)
    }

    /// All locations of a stack, innermost first.
    pub(super) fn all_locations(&self, stack: StackId) -> &'a [LocationId] {
        self.profile
            .stacks
            .get(stack.0 as usize)
            .map_or(&[], |stack| stack.locations.as_slice())
    }

    /// The functions of a stack that are shown, innermost first.
    pub(super) fn stack(&self, stack: StackId) -> Vec<StackFrame<'a>> {
        self.locations(stack)
            .iter()
            .flat_map(|location| self.frames(*location))
            .collect()
    }

    /// The index of the user's function in the frames of a stack: the innermost one that is no allocator wrapper. The code of an
    /// interpreter works for the function that it runs.
    pub(super) fn user_frame(&self, stack: StackId, frames: &[StackFrame<'_>]) -> usize {
        wrappers::user_frame(self.parts(stack, frames))
    }

    /// The labels of at most `most` functions of a stack, beginning with the user's function, without an interpreter's code between
    /// them. If one of them has a line of Python, so has the list, as far as it has room for more than one.
    pub fn user_functions(&self, stack: StackId, most: usize) -> Vec<FunctionLabel> {
        let frames = self.stack(stack);
        let first = self.user_frame(stack, &frames);
        let interpreted = self.interpreted(stack, &frames);
        let is_shown = |(at, frame): &(usize, &StackFrame<'_>)| {
            *at == first || !interpreted.is_some_and(|it| it.has(*at, frame))
        };
        let shown = frames.iter().enumerate().skip(first).filter(is_shown);
        let mut shown: Vec<_> = shown.map(|(_, frame)| frame).collect();
        // The line of an interpreted function says more than one more function of the extension that it called.
        let line = shown.iter().position(|frame| frame.language.is_some());
        let kept = most.saturating_sub(1).max(1);
        if let Some(line) = line.filter(|line| *line > kept) {
            shown.drain(kept..line);
        }
        shown.truncate(most);
        let label = |frame| FunctionLabel::new(frame, self.label(frame));
        shown.into_iter().map(label).collect()
    }

    /// The parts that frames have in their stack, each found when it is asked for: the innermost ones are enough in most cases.
    fn parts<'f>(
        &'f self,
        stack: StackId,
        frames: &'f [StackFrame<'_>],
    ) -> impl Iterator<Item = Part> + 'f {
        let interpreted = self.interpreted(stack, frames);
        let part = move |(at, frame): (usize, &StackFrame<'_>)| match &interpreted {
            Some(interpreted) if interpreted.has(at, frame) => Part::Wrapper,
            _ => self.wrappers.part(frame),
        };
        frames.iter().enumerate().map(part)
    }

    /// The frames of a stack from the user's function on, without the code of an interpreter that runs some of them, and without its
    /// own functions for imports.
    pub(super) fn without_interpreter(
        &self,
        stack: StackId,
        frames: &[StackFrame<'a>],
        user: usize,
    ) -> Vec<StackFrame<'a>> {
        let interpreted = self.interpreted(stack, frames);
        let is_shown = |(at, frame): &(usize, &StackFrame<'a>)| {
            let is_import =
                || frame.language.is_some() && self.wrappers.part(frame) == Part::Wrapper;
            *at == user || !interpreted.is_some_and(|it| it.is_its_code(frame) || is_import())
        };
        let frames = frames.iter().enumerate().skip(user).filter(is_shown);
        frames.map(|(_, frame)| *frame).collect()
    }

    /// Which frames of a stack are the interpreter at work; `None` if wrappers are shown, or if there are no functions that an
    /// interpreter runs.
    fn interpreted(&self, stack: StackId, frames: &[StackFrame<'_>]) -> Option<Interpreted<'a>> {
        if self.wrappers.are_shown() {
            return None;
        }
        let is_run = |id: &LocationId| {
            let language = language_of(self.profile, *id);
            language.is_some_and(Language::is_interpreted)
        };
        // The code that runs functions follows them, after what was made at run time.
        let locations = self.all_locations(stack).iter();
        let mut runs = locations
            .skip_while(|id| !is_run(id))
            .filter(|id| !is_run(id));
        let by = runs.find_map(|id| self.module(*id));
        Interpreted::of(frames, by)
    }

    /// The file of a location.
    fn module(&self, id: LocationId) -> Option<&'a Module> {
        let id = self.profile.locations.get(id.0 as usize)?.module?;
        self.profile.modules.get(id.0 as usize)
    }

    /// The functions at a location, innermost first; one without a name if no symbol is known.
    pub(super) fn frames(&self, id: LocationId) -> Vec<StackFrame<'a>> {
        let location = self.profile.locations.get(id.0 as usize);
        let unknown = StackFrame {
            location: id,
            language: None,
            function: None,
            module: self.module(id),
            address: location.map_or(0, |location| location.address),
            file: None,
            line: 0,
            inlined: false,
        };
        if let Some((language, label)) = hidden_label(id) {
            return vec![StackFrame {
                language,
                function: Some(label),
                ..unknown
            }];
        }
        if let Some(function) = location.and_then(|location| location.function) {
            return vec![self.interpreted_frame(function, unknown)];
        }
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

    /// The frame of a function that an interpreter runs; its line is where machine code has its address.
    fn interpreted_frame(&self, id: FunctionId, at: StackFrame<'a>) -> StackFrame<'a> {
        let function = self.profile.functions.get(id.0 as usize);
        let text = |text: &'a String| Some(text.as_str()).filter(|text| !text.is_empty());
        StackFrame {
            language: function.map(|function| function.language),
            function: function.and_then(|function| text(&function.name)),
            file: function.and_then(|function| text(&function.file)),
            line: u32::try_from(at.address).unwrap_or(0),
            module: None,
            address: 0,
            ..at
        }
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

    /// What stands in place of the outermost functions of an incomplete stack. Otherwise an inner function would look like the beginning
    /// of the program.
    pub(super) fn incomplete_mark(&self, stack: StackId) -> Option<&'static str> {
        match self.completeness(stack).0 {
            Completeness::Complete => None,
            Completeness::Truncated => Some("[stack deeper than the limit]"),
            Completeness::Broken => Some("[incomplete stack]"),
        }
    }

    /// The number of code addresses in the sites' stacks that have no name.
    pub(super) fn unsymbolized(&self) -> u64 {
        let locations: HashSet<LocationId> = self
            .profile
            .sites
            .iter()
            .flat_map(|site| self.all_locations(site.stack))
            .copied()
            // What an interpreter runs is named by it, and not by symbols.
            .filter(|id| language_of(self.profile, *id).is_none())
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

/// A process as people write it: `server (42)`. Safe to print.
pub(super) fn process_label(process: &Process) -> String {
    let command = text::escape(&process.command);
    match process.merged {
        0 => format!("{command} ({})", process.pid),
        many => format!("{command} ({} ended)", text::count(many)),
    }
}
