//! The stacks of sites for other programs: each function and each stack once, from the outermost function inwards.
//!
//! Stage: output. Shared by formats that hold names. Must not know any of them.

use std::collections::HashMap;
use std::rc::Rc;

use super::frame::StackFrame;
use super::label::kind_name;
use super::report_input::{ReportInput, process_label};
use crate::join::{Kind, LocationId, Site};
use crate::text::escape;

/// What a stack consists of: a function, or what stands for a process, a kind of memory, or a missing part. All texts are safe to
/// print, and empty if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// The function's name, or its position.
    pub(super) name: String,
    /// The path of the file that holds its code.
    pub(super) module: String,
    /// The path of its source file.
    pub(super) file: String,
    /// The line in it, 0 if unknown.
    pub(super) line: u32,
}

/// A stack: another stack, and a place that was called from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    /// The caller's stack; `None` for the outermost place.
    pub(super) caller: Option<u32>,
    /// The place, as an index of [`Stacks::places`].
    pub(super) place: u32,
}

/// The stacks of a profile, as far as they were asked for.
pub(super) struct Stacks<'a> {
    input: &'a ReportInput<'a>,
    /// All places.
    pub(super) places: Vec<Rc<Place>>,
    /// All stacks; a caller comes before its callees.
    pub(super) nodes: Vec<Node>,
    place_ids: HashMap<Rc<Place>, u32>,
    node_ids: HashMap<Node, u32>,
    /// The places at a location, the outermost first.
    at: HashMap<LocationId, Vec<u32>>,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(input: &'a ReportInput<'a>) -> Self {
        Self {
            input,
            places: Vec::new(),
            nodes: Vec::new(),
            place_ids: HashMap::new(),
            node_ids: HashMap::new(),
            at: HashMap::new(),
        }
    }

    /// The stack of a site, as an index of [`Self::nodes`]. If there are several processes, the outermost place is the process.
    pub(super) fn of(&mut self, site: &Site) -> u32 {
        let process = match self.input.profile.processes.len() {
            0 | 1 => None,
            _ => self.input.process(site).map(process_label),
        };
        self.below(process.as_deref(), site)
    }

    /// The stack of a site without its process.
    pub(super) fn inside_process(&mut self, site: &Site) -> u32 {
        self.below(None, site)
    }

    fn below(&mut self, root: Option<&str>, site: &Site) -> u32 {
        let mut node = root.map(|root| self.mark(None, root));
        let locations = self.input.locations(site.stack);
        if locations.is_empty() {
            node = Some(self.mark(node, "[no stack]"));
        } else if let Some(mark) = self.input.incomplete_mark(site.stack) {
            node = Some(self.mark(node, mark));
        }
        for location in locations.iter().rev() {
            node = self.at(node, *location);
        }
        match (site.kind, node) {
            (Kind::Heap, Some(node)) => node,
            // A caller of mmap must look different from a caller of malloc.
            (kind, node) => self.mark(node, &format!("[{}]", kind_name(kind))),
        }
    }

    /// The places of a stack, the outermost first.
    pub(super) fn path(&self, node: u32) -> Vec<u32> {
        let mut path = Vec::new();
        let mut next = Some(node);
        while let Some(node) = next.and_then(|node| self.nodes.get(node as usize)) {
            path.push(node.place);
            next = node.caller;
        }
        path.reverse();
        path
    }

    /// The names of a stack, the outermost first, separated by semicolons, which names have not.
    pub(super) fn folded(&self, node: u32) -> String {
        let places = self.path(node).into_iter();
        let names = places.filter_map(|place| self.places.get(place as usize));
        let names: Vec<_> = names.map(|place| place.name.replace(';', ":")).collect();
        names.join(";")
    }

    fn at(&mut self, mut node: Option<u32>, location: LocationId) -> Option<u32> {
        if !self.at.contains_key(&location) {
            let frames = self.input.frames(location);
            let places = frames
                .iter()
                .rev()
                .map(|frame| self.place(Place::of(frame)));
            let places = places.collect();
            self.at.insert(location, places);
        }
        let places = self.at.get(&location).cloned().unwrap_or_default();
        for place in places {
            node = Some(self.node(node, place));
        }
        node
    }

    fn mark(&mut self, caller: Option<u32>, name: &str) -> u32 {
        let place = self.place(Place {
            name: name.to_owned(),
            ..Place::default()
        });
        self.node(caller, place)
    }

    fn place(&mut self, place: Place) -> u32 {
        if let Some(id) = self.place_ids.get(&place) {
            return *id;
        }
        let id = self.places.len() as u32;
        let place = Rc::new(place);
        self.places.push(Rc::clone(&place));
        self.place_ids.insert(place, id);
        id
    }

    fn node(&mut self, caller: Option<u32>, place: u32) -> u32 {
        let node = Node { caller, place };
        let id = self.nodes.len() as u32;
        *self.node_ids.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            id
        })
    }
}

impl Place {
    fn of(frame: &StackFrame<'_>) -> Self {
        let name = frame.label();
        Self {
            name: match name.trim() {
                "" => "[no name]".to_owned(),
                _ => name,
            },
            module: escape(frame.module.map_or("", |module| &module.path)).into_owned(),
            file: escape(frame.file.unwrap_or_default()).into_owned(),
            line: frame.line,
        }
    }
}
