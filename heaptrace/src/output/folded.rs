//! The frames of a flame graph: the stacks of a metric, merged from the outermost frame on.
//!
//! Stage: output. Builds the graph from the outermost frame inwards, and only below frames that are large
//! enough. So time and memory depend on the frames that are shown, not on the size of the profile.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::error::OutputError;
use super::frame::StackFrame;
use super::label::{Label, kind_name};
use super::metric::Metric;
use super::report_input::{ReportInput, process_label};
use super::shown::{self, language_name};
use super::wrappers::Part;
use crate::join::{Kind, Language, LocationId, Site, StackId};
use crate::text::escape;

/// The merged stacks of a metric.
#[derive(Debug)]
pub(super) struct Folded {
    /// The frames, depth first: each is followed by its callees, in the order of their names.
    pub(super) frames: Vec<Frame>,
    /// The sum of the values of all stacks.
    pub(super) sum: u64,
    /// The number of frames that were too small; their callees are not counted.
    pub(super) left_out: u64,
}

/// A frame of the graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The number of its callers in the graph.
    pub(super) depth: usize,
    /// Its name, as an index of the folder's names.
    pub(super) name: u32,
    /// The value of its stacks.
    pub(super) value: u64,
    /// The standard error of the value.
    pub(super) error: u64,
    /// The part of the value that no callee in the graph has.
    pub(super) own: u64,
}

/// The limit for the frames of all metrics: several times those of a large graph.
const MOST_FRAMES: usize = 1 << 20;

/// The name that replaces the outermost frames that were left out.
pub(super) const LEFT_OUT: &str = "[left out]";

/// The position in a site's stack up to which the graph is built.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    site: u32,
    /// The number of code addresses that are done, counting the root of the graph and the mark of an
    /// incomplete stack as one each.
    address: u32,
    /// The number of functions that are done at the next address.
    function: u32,
    /// The name of the next frame.
    next: u32,
    value: u64,
    /// The standard error of the value.
    error: u64,
}

/// The stack has no further frame.
const NONE: u32 = u32::MAX;

impl Cursor {
    fn first(site: u32, value: u64, error: u64) -> Self {
        Self {
            site,
            address: 0,
            function: 0,
            next: NONE,
            value,
            error,
        }
    }
}

/// A frame whose callees are not handled yet.
struct Open {
    depth: usize,
    callee: Callee,
}

/// Merges stacks. It can merge several metrics, which then share their names.
pub(super) struct Folder<'a> {
    input: &'a ReportInput<'a>,
    /// The root of the graph, if it is not a function.
    root: Root,
    names: Names,
    /// The locations of each stack that are shown.
    stacks: Vec<Cow<'a, [LocationId]>>,
    /// The range in `of_addresses` that holds the names of each code address, outermost function first.
    at: Vec<Option<(u32, u32)>>,
    of_addresses: Vec<u32>,
    cursors: Vec<Cursor>,
    /// The number of frames of all metrics.
    frames: usize,
}

#[derive(Clone, Copy, Debug)]
enum Root {
    Function,
    Process,
    Label(Label),
}

/// The sites that continue with the same frame.
struct Callee {
    name: u32,
    sites: Range<usize>,
    value: u64,
    error: u64,
}

impl<'a> Folder<'a> {
    pub(super) fn new(input: &'a ReportInput<'a>) -> Self {
        // Only names of processes and threads can be the root; a stack has many functions.
        let label = input.grouping.map(|grouping| grouping.by);
        let label = label.filter(|label| !label.is_of_stack());
        let is_one = input.profile.processes.len() <= 1;
        Self {
            input,
            root: match label {
                Some(label) => Root::Label(label),
                None if is_one => Root::Function,
                None => Root::Process,
            },
            names: Names::default(),
            stacks: (0..)
                .zip(&input.profile.stacks)
                .map(|(id, _)| input.locations(StackId(id)))
                .collect(),
            at: vec![None; shown::slots(input.profile)],
            of_addresses: Vec::new(),
            cursors: Vec::new(),
            frames: 0,
        }
    }

    /// The names of all frames.
    pub(super) fn names(&self) -> &[Rc<Name>] {
        &self.names.names
    }

    /// Merges the stacks of a metric. Frames with less than `least_part` of the sum are left out, and their
    /// values are added to their callers.
    pub(super) fn fold(&mut self, metric: Metric, least_part: f64) -> Result<Folded, OutputError> {
        let mut sum = 0u64;
        self.cursors.clear();
        for (index, site) in (0..).zip(&self.input.profile.sites) {
            let value = metric.of(&site.totals);
            // Only a crafted file has such a sum, and a drawing would show wrong numbers.
            sum = sum
                .checked_add(value)
                .filter(|sum| i64::try_from(*sum).is_ok())
                .ok_or(OutputError::TooLarge)?;
            if value > 0 {
                let error = metric.error(&site.totals);
                self.cursors.push(Cursor::first(index, value, error));
            }
        }
        let least = sum as f64 * least_part;
        let mut folded = Folded {
            frames: Vec::new(),
            sum,
            left_out: 0,
        };
        // The visit does not recurse, because the file decides how deep a stack is.
        let mut open = self.open(&mut folded, least, None)?;
        while let Some(frame) = open.pop() {
            let callees = self.open(&mut folded, least, Some(frame))?;
            open.extend(callees);
        }
        Ok(folded)
    }

    /// Adds a frame to the graph, and returns its callees, last name first. Without a frame, it returns the
    /// outermost frames.
    fn open(
        &mut self,
        folded: &mut Folded,
        least: f64,
        frame: Option<Open>,
    ) -> Result<Vec<Open>, OutputError> {
        let (depth, sites) = match &frame {
            Some(frame) => (frame.depth + 1, frame.callee.sites.clone()),
            None => (0, 0..self.cursors.len()),
        };
        let mut callees = Vec::new();
        // The frame's own value, and the values of the callees that are left out.
        let mut own = 0;
        for callee in self.callees(sites) {
            if callee.name != NONE && callee.value as f64 >= least {
                callees.push(Open { depth, callee });
            } else {
                own += callee.value;
                folded.left_out += u64::from(callee.name != NONE);
            }
        }
        let added = match frame {
            Some(Open { depth, callee }) => Some(Frame {
                depth,
                name: callee.name,
                value: callee.value,
                error: callee.error,
                own,
            }),
            // A graph can't show a value without a frame.
            None => (own > 0).then(|| Frame {
                depth,
                name: self.names.id(Name::other(LEFT_OUT)),
                value: own,
                error: 0,
                own,
            }),
        };
        if let Some(added) = added {
            self.frames += 1;
            if self.frames > MOST_FRAMES {
                return Err(OutputError::TooMuch);
            }
            folded.frames.push(added);
        }
        let names = self.names();
        let name = |open: &Open| {
            names
                .get(open.callee.name as usize)
                .map(|name| name.sort_key())
        };
        callees.sort_unstable_by(|a, b| name(b).cmp(&name(a)));
        Ok(callees)
    }

    /// Groups the sites of a frame by their next frame.
    fn callees(&mut self, sites: Range<usize>) -> Vec<Callee> {
        for index in sites.clone() {
            let Some(mut cursor) = self.cursors.get(index).copied() else {
                continue;
            };
            cursor.next = self.step(&mut cursor).unwrap_or(NONE);
            if let Some(old) = self.cursors.get_mut(index) {
                *old = cursor;
            }
        }
        let start = sites.start;
        let Some(cursors) = self.cursors.get_mut(sites) else {
            return Vec::new();
        };
        cursors.sort_unstable_by_key(|cursor| cursor.next);
        let mut at = start;
        cursors
            .chunk_by(|a, b| a.next == b.next)
            .map(|same| {
                let sites = at..at + same.len();
                at = sites.end;
                // The samples of different sites are independent, so their variances add up.
                let variance: f64 = same.iter().map(|it| (it.error as f64).powi(2)).sum();
                Callee {
                    name: same.first().map_or(NONE, |cursor| cursor.next),
                    sites,
                    value: same.iter().map(|cursor| cursor.value).sum(),
                    error: variance.sqrt().round() as u64,
                }
            })
            .collect()
    }

    /// Moves a site's cursor forward, and returns the next frame.
    fn step(&mut self, cursor: &mut Cursor) -> Option<u32> {
        let site = self.input.profile.sites.get(cursor.site as usize)?;
        let locations = self.stacks.get(site.stack.0 as usize);
        let locations = locations.map_or(&[][..], |locations| locations);
        // The order is: root, mark of an incomplete stack, code addresses from the outermost one on, kind of memory or type.
        if cursor.address == 0 {
            cursor.address = 1;
            if let Some(root) = self.root_of(site) {
                return Some(self.names.id(Name::other(&root)));
            }
        }
        if cursor.address == 1 {
            cursor.address = 2;
            let incomplete = self.input.incomplete_mark(site.stack);
            if let Some(name) = incomplete.filter(|_| !locations.is_empty()) {
                return Some(self.names.id(Name::other(name)));
            }
        }
        let at = cursor.address as usize - 1;
        let Some(left) = locations.len().checked_sub(at) else {
            cursor.address = cursor.address.checked_add(1)?;
            if at == 1 {
                return Some(self.names.id(Name::other("[no stack]")));
            }
            let is_next = at == locations.len().max(1) + 1;
            let name = match site.kind {
                _ if !is_next => return None,
                // A caller of mmap must look different from a caller of malloc.
                Kind::Mapped => format!("[{}]", kind_name(site.kind)),
                Kind::Heap if self.input.with_types => {
                    format!("[{}]", escape(self.input.type_name(site)))
                }
                Kind::Heap => return None,
            };
            return Some(self.names.id(Name::other(&name)));
        };
        let names = self.names_at(*locations.get(left)?);
        let functions = self.of_addresses.get(names)?;
        let name = functions.get(cursor.function as usize).copied()?;
        cursor.function += 1;
        if cursor.function as usize == functions.len() {
            (cursor.address, cursor.function) = (cursor.address + 1, 0);
        }
        Some(name)
    }

    /// The range of the names at a code address. They are looked up once per address.
    fn names_at(&mut self, location: LocationId) -> Range<usize> {
        let index = shown::slot(self.input.profile, location);
        if let Some(Some((start, end))) = self.at.get(index) {
            return *start as usize..*end as usize;
        }
        let start = self.of_addresses.len();
        for frame in self.input.frames(location).iter().rev() {
            let is_user = self.input.wrappers.part(frame) == Part::User;
            let name = self.names.id(Name::of(frame, is_user));
            self.of_addresses.push(name);
        }
        let end = self.of_addresses.len();
        if let Some(range) = self.at.get_mut(index) {
            *range = Some((start as u32, end as u32));
        }
        start..end
    }

    /// The name at the root of the graph, if it is not a function.
    fn root_of(&self, site: &Site) -> Option<String> {
        match self.root {
            Root::Function => None,
            Root::Process => self.input.process(site).map(process_label),
            Root::Label(label) => Some(match self.input.caller(site, label) {
                Some(name) => escape(&name).into_owned(),
                None => label.none().to_owned(),
            }),
        }
    }
}

/// The name of a frame.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    /// The function, or the process. Safe to print.
    pub(super) text: String,
    /// The name of the file that holds the function: its code, or its source if an interpreter runs it. Safe to print.
    pub(super) module: Option<String>,
    /// The language of the function; `None` for machine code, and for what is no function.
    pub(super) language: Option<Language>,
    /// Whether it is a function of the program itself, and not an allocator wrapper or library plumbing.
    pub(super) is_user: bool,
}

impl Name {
    /// The name of a function.
    fn of(frame: &StackFrame<'_>, is_user: bool) -> Self {
        let module = match frame.language {
            None => frame.module.map(|module| module.name()),
            Some(_) => frame.short_file(),
        };
        Self {
            module: module.map(|module| escape(module).into_owned()),
            language: frame.language,
            is_user,
            ..Self::other(&frame.label())
        }
    }

    /// The name of what is no function.
    fn other(text: &str) -> Self {
        Self {
            text: match text.trim() {
                "" => "[no name]".to_owned(),
                text => text.to_owned(),
            },
            module: None,
            language: None,
            is_user: false,
        }
    }

    /// The file of the function, and its language if it has one: ` [app.py] [python]`; empty for what is no function. Safe to print.
    pub(super) fn suffix(&self) -> String {
        let language = self
            .language
            .is_some()
            .then(|| language_name(self.language));
        let parts = [self.module.as_deref(), language].into_iter().flatten();
        parts.map(|part| format!(" [{part}]")).collect()
    }

    fn sort_key(&self) -> (&str, Option<&str>) {
        (&self.text, self.module.as_deref())
    }
}

/// Names of frames, each stored once.
#[derive(Debug, Default)]
struct Names {
    names: Vec<Rc<Name>>,
    ids: HashMap<Rc<Name>, u32>,
}

impl Names {
    fn id(&mut self, name: Name) -> u32 {
        if let Some(id) = self.ids.get(&name) {
            return *id;
        }
        let id = self.names.len() as u32;
        let name = Rc::new(name);
        self.names.push(Rc::clone(&name));
        self.ids.insert(name, id);
        id
    }
}
