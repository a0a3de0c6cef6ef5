//! The entries of a file's debug information, found by address and by reference.
//!
//! Stage: types. Runs in a reader. `units.rs` has the units. One is read once, when an address or a reference leads to it. Of its entries, only the places of scopes and
//! functions are kept. The file may contain anything: all that is followed has a bound. Must not know what entries mean.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset, constants};

use super::units::{Part, Place, Slice, Units};

/// An entry with its attributes.
pub(super) type Entry<'s> = DebuggingInformationEntry<Slice<'s>>;

/// Most ranges of addresses that are kept for the functions of a unit.
const MAX_RANGES: usize = 4 << 20;

/// Most scopes and functions that are kept at a time.
const MAX_NODES: usize = 3 << 20;

/// Most entries that are read for a question.
const MAX_ENTRIES: u64 = 96 << 20;

/// Most children of an entry that are looked at.
const MAX_CHILDREN: usize = 1 << 16;

/// A scope or a function.
#[derive(Clone, Copy, Debug)]
struct Node {
    offset: usize,
    parent: u32,
    tag: constants::DwTag,
}

const NO_PARENT: u32 = u32::MAX;

/// The code of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) offset: usize,
}

/// A unit that was read.
pub(super) struct Loaded<'s> {
    pub(super) unit: Unit<Slice<'s>>,
    nodes: Vec<Node>,
    functions: Vec<Code>,
    pub(super) language: Option<constants::DwLang>,
    dwarf: &'s Dwarf<Slice<'s>>,
}

/// The debug information of a file.
pub(super) struct DebugInfo<'s> {
    units: Units<'s>,
    loaded: RefCell<HashMap<u32, Option<Rc<Loaded<'s>>>>>,
    nodes: Cell<usize>,
    entries: Cell<u64>,
}

impl<'s> DebugInfo<'s> {
    /// That of a file, some of whose units are in parts of their own.
    pub(super) fn of(dwarf: &'s Dwarf<Slice<'s>>, parts: &'s [Part<'s>]) -> Self {
        Self {
            units: Units::of(dwarf, parts),
            loaded: RefCell::new(HashMap::new()),
            nodes: Cell::new(0),
            entries: Cell::new(0),
        }
    }

    pub(super) fn dwarf_of(&self, unit: &Loaded<'s>) -> &'s Dwarf<Slice<'s>> {
        unit.dwarf
    }

    /// Reads a unit, or returns it if it was read before.
    pub(super) fn load(&self, unit: u32) -> Option<Rc<Loaded<'s>>> {
        if let Some(known) = self.loaded.borrow().get(&unit) {
            return known.clone();
        }
        if self.nodes.get() > MAX_NODES {
            self.loaded.borrow_mut().clear();
            self.nodes.set(0);
        }
        let loaded = self.read(unit).ok().flatten().map(Rc::new);
        let nodes = loaded.as_ref().map_or(0, |it| it.nodes.len());
        self.nodes.set(self.nodes.get() + nodes);
        self.loaded.borrow_mut().insert(unit, loaded.clone());
        loaded
    }

    /// Counts entries that are read; false once there were too many.
    pub(super) fn spend(&self, entries: u64) -> bool {
        let spent = self.entries.get().saturating_add(entries);
        self.entries.set(spent);
        spent <= MAX_ENTRIES
    }

    fn read(&self, index: u32) -> gimli::Result<Option<Loaded<'s>>> {
        let Some((dwarf, unit)) = self.units.open(index) else {
            return Ok(None);
        };
        let mut nodes: Vec<Node> = Vec::new();
        let mut functions = Vec::new();
        let mut language = None;
        let mut parents: Vec<(isize, u32)> = Vec::new();
        let mut raw = unit.entries_raw(None)?;
        let mut attributes = Vec::new();
        let mut count = 0_u64;
        while !raw.is_empty() {
            let (offset, depth) = (raw.next_offset(), raw.next_depth());
            let Some(abbreviation) = raw.read_abbreviation()? else {
                continue;
            };
            count += 1;
            let tag = abbreviation.tag();
            while parents.last().is_some_and(|(of, _)| *of >= depth) {
                parents.pop();
            }
            if is_scope(tag) && nodes.len() < MAX_NODES {
                if abbreviation.has_children() {
                    parents.push((depth, nodes.len() as u32));
                }
                let own = usize::from(abbreviation.has_children());
                let parent = parents.len().checked_sub(1 + own);
                let parent = parent.and_then(|at| parents.get(at));
                nodes.push(Node {
                    offset: offset.0,
                    parent: parent.map_or(NO_PARENT, |(_, node)| *node),
                    tag,
                });
            }
            let has_code = tag == constants::DW_TAG_subprogram
                && abbreviation.attributes().iter().any(|it| {
                    matches!(it.name(), constants::DW_AT_low_pc | constants::DW_AT_ranges)
                });
            let is_unit = depth == 0;
            if !has_code && !is_unit {
                raw.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            raw.read_attributes(abbreviation.attributes(), &mut attributes)?;
            let taken = std::mem::take(&mut attributes);
            let entry = Entry::new(tag, abbreviation.has_children(), taken, offset);
            if is_unit
                && let Some(AttributeValue::Language(of)) =
                    entry.attr_value(constants::DW_AT_language)
            {
                language = Some(of);
            }
            if has_code {
                let mut ranges = dwarf.die_ranges(&unit, &entry)?;
                while let Some(range) = ranges.next()?
                    && functions.len() < MAX_RANGES
                {
                    if range.begin != 0 && range.begin < range.end {
                        functions.push(Code {
                            begin: range.begin,
                            end: range.end,
                            offset: offset.0,
                        });
                    }
                }
            }
        }
        if !self.spend(count) {
            return Ok(None);
        }
        functions.sort_unstable_by_key(|it| it.begin);
        Ok(Some(Loaded {
            unit,
            nodes,
            functions,
            language,
            dwarf,
        }))
    }

    /// The function whose code has an address.
    pub(super) fn function(&self, address: u64) -> Option<(Place, Code)> {
        for unit in self.units.at(address) {
            let Some(loaded) = self.load(unit) else {
                continue;
            };
            let end = loaded.functions.partition_point(|it| it.begin <= address);
            let before = loaded.functions.get(..end).unwrap_or_default();
            let found = before.iter().rev().take(64).find(|it| address < it.end);
            if let Some(code) = found {
                let place = Place {
                    unit,
                    offset: code.offset,
                };
                return Some((place, *code));
            }
        }
        None
    }

    /// Reads an entry.
    pub(super) fn entry(&self, place: Place) -> Option<(Rc<Loaded<'s>>, Entry<'s>)> {
        let loaded = self.load(place.unit)?;
        if !self.spend(1) {
            return None;
        }
        let entry = loaded.unit.entry(UnitOffset(place.offset)).ok()?;
        (!entry.is_null()).then_some((loaded, entry))
    }

    /// The children of an entry with these tags.
    pub(super) fn children(&self, place: Place, tags: &[constants::DwTag]) -> Vec<Entry<'s>> {
        let mut found = Vec::new();
        let _ = self.collect_children(place, tags, &mut found);
        found
    }

    fn collect_children(
        &self,
        place: Place,
        tags: &[constants::DwTag],
        found: &mut Vec<Entry<'s>>,
    ) -> Option<()> {
        let loaded = self.load(place.unit)?;
        let mut raw = loaded
            .unit
            .entries_raw(Some(UnitOffset(place.offset)))
            .ok()?;
        let first = raw.read_abbreviation().ok()??;
        raw.skip_attributes(first.attributes()).ok()?;
        if !first.has_children() {
            return Some(());
        }
        let mut count = 0;
        while !raw.is_empty() && raw.next_depth() > 0 && count < MAX_CHILDREN {
            let (offset, depth) = (raw.next_offset(), raw.next_depth());
            let Some(abbreviation) = raw.read_abbreviation().ok()? else {
                continue;
            };
            count += 1;
            if depth != 1 || !tags.contains(&abbreviation.tag()) {
                raw.skip_attributes(abbreviation.attributes()).ok()?;
                continue;
            }
            let mut attributes = Vec::new();
            raw.read_attributes(abbreviation.attributes(), &mut attributes)
                .ok()?;
            found.push(Entry::new(
                abbreviation.tag(),
                abbreviation.has_children(),
                attributes,
                offset,
            ));
        }
        self.spend(count as u64).then_some(())
    }

    /// The entry that an attribute refers to.
    pub(super) fn referred(&self, from: u32, value: AttributeValue<Slice<'s>>) -> Option<Place> {
        self.units.referred(from, value)
    }

    /// The scope that an entry is in.
    pub(super) fn parent(&self, place: Place) -> Option<(Place, constants::DwTag)> {
        let loaded = self.load(place.unit)?;
        let nodes = &loaded.nodes;
        let at = nodes.binary_search_by_key(&place.offset, |it| it.offset);
        let parent = nodes.get(at.ok()?)?.parent;
        let node = nodes.get(parent as usize)?;
        let place = Place {
            unit: place.unit,
            offset: node.offset,
        };
        Some((place, node.tag))
    }

    /// The classes of a unit with this name, without arguments.
    pub(super) fn classes(&self, unit: u32, name: &str) -> Option<Vec<Place>> {
        let loaded = self.load(unit)?;
        let mut found = Vec::new();
        for node in &loaded.nodes {
            let is_class = matches!(
                node.tag,
                constants::DW_TAG_structure_type | constants::DW_TAG_class_type
            );
            if !is_class || found.len() >= 64 {
                continue;
            }
            let place = Place {
                unit,
                offset: node.offset,
            };
            let (_, entry) = self.entry(place)?;
            let own = entry.attr_value(constants::DW_AT_name);
            let own = own.and_then(|it| self.text(&loaded, it));
            let is_named = |own: String| {
                let rest = own.strip_prefix(name);
                rest.is_some_and(|it| it.is_empty() || it.starts_with('<'))
            };
            if own.is_some_and(is_named) {
                found.push(place);
            }
        }
        Some(found)
    }

    /// An attribute's text.
    pub(super) fn text(
        &self,
        unit: &Loaded<'s>,
        value: AttributeValue<Slice<'s>>,
    ) -> Option<String> {
        let text = self.dwarf_of(unit).attr_string(&unit.unit, value).ok()?;
        let bytes = text.slice();
        (bytes.len() <= super::super::protocol::MAX_NAME)
            .then(|| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Whether entries in this one have its name in theirs, or code.
fn is_scope(tag: constants::DwTag) -> bool {
    matches!(
        tag,
        constants::DW_TAG_namespace
            | constants::DW_TAG_module
            | constants::DW_TAG_structure_type
            | constants::DW_TAG_class_type
            | constants::DW_TAG_union_type
            | constants::DW_TAG_interface_type
            | constants::DW_TAG_enumeration_type
            | constants::DW_TAG_variant_part
            | constants::DW_TAG_subprogram
            | constants::DW_TAG_typedef
    )
}
