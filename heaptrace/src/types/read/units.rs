//! The units of a file's debug information, those of its other files included.
//!
//! Stage: types. Runs in a reader. A unit may be in the file itself, in its section of types, in the file that it shares with others (dwz), or in a file of its
//! own (split DWARF), whose addresses are in the file itself. Must not know what entries mean.

use std::cell::OnceCell;
use std::collections::HashMap;

use gimli::{
    AttributeValue, DebugTypeSignature, Dwarf, DwoId, EndianSlice, LittleEndian, Unit, UnitHeader,
    UnitType,
};

/// A piece of a section.
pub(super) type Slice<'s> = EndianSlice<'s, LittleEndian>;

/// Most units that a file may have.
const MAX_UNITS: usize = 1 << 20;

/// Most ranges of addresses that are kept for all units.
const MAX_RANGES: usize = 4 << 20;

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) unit: u32,
    pub(super) offset: usize,
}

/// A part of the debug information that is in another file.
pub(super) struct Part<'s> {
    /// The unit that it is; `None` if it has types only.
    pub(super) id: Option<DwoId>,
    pub(super) dwarf: Dwarf<Slice<'s>>,
}

/// The part of the debug information that a unit is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Main,
    Types,
    Shared,
    /// The number of a part.
    Part(u32),
    /// The number of a part, whose section of types it is.
    TypesOfPart(u32),
}

/// The units, numbered.
pub(super) struct Units<'s> {
    dwarf: &'s Dwarf<Slice<'s>>,
    parts: &'s [Part<'s>],
    headers: Vec<(UnitHeader<Slice<'s>>, Section)>,
    /// The units in the file itself that stand for those in parts.
    skeletons: HashMap<u32, u32>,
    /// Ranges of addresses of units, by their beginnings.
    ranges: Vec<(u64, u64, u32)>,
    signatures: OnceCell<HashMap<DebugTypeSignature, Place>>,
}

impl<'s> Units<'s> {
    pub(super) fn of(dwarf: &'s Dwarf<Slice<'s>>, parts: &'s [Part<'s>]) -> Self {
        let mut units = Self {
            dwarf,
            parts,
            headers: Vec::new(),
            skeletons: HashMap::new(),
            ranges: Vec::new(),
            signatures: OnceCell::new(),
        };
        units.add(dwarf, Section::Main);
        let own = units.headers.len();
        units.add_types(dwarf, Section::Types);
        if let Some(shared) = dwarf.sup() {
            units.add(shared, Section::Shared);
        }
        let mut elsewhere = HashMap::new();
        for (number, part) in (0..).zip(parts) {
            let first = units.headers.len();
            units.add(&part.dwarf, Section::Part(number));
            units.add_types(&part.dwarf, Section::TypesOfPart(number));
            let added = units.headers.iter().enumerate().skip(first);
            let mut whole = added.filter(|(_, (header, _))| !is_of_type(header));
            if let Some(id) = part.id
                && let Some((index, _)) = whole.next()
            {
                elsewhere.insert(id, index as u32);
            }
        }
        for index in 0..own {
            units.add_ranges(index as u32, &elsewhere);
        }
        units.ranges.sort_unstable();
        units
    }

    fn add(&mut self, dwarf: &Dwarf<Slice<'s>>, section: Section) {
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next()
            && self.headers.len() < MAX_UNITS
        {
            self.headers.push((header, section));
        }
    }

    fn add_types(&mut self, dwarf: &Dwarf<Slice<'s>>, section: Section) {
        let mut headers = dwarf.type_units();
        while let Ok(Some(header)) = headers.next()
            && self.headers.len() < MAX_UNITS
        {
            self.headers.push((header, section));
        }
    }

    /// Adds the ranges of a unit of the file itself. A unit that is elsewhere takes its place.
    fn add_ranges(&mut self, index: u32, elsewhere: &HashMap<DwoId, u32>) {
        let Some(unit) = self.plain(index) else {
            return;
        };
        let Ok(mut of_unit) = self.dwarf.unit_ranges(&unit) else {
            return;
        };
        let other = unit.dwo_id.and_then(|id| elsewhere.get(&id).copied());
        if let Some(other) = other {
            self.skeletons.insert(other, index);
        }
        while let Ok(Some(range)) = of_unit.next()
            && self.ranges.len() < MAX_RANGES
        {
            // Code that the linker left out is at 0.
            if range.begin != 0 && range.begin < range.end {
                let unit = other.unwrap_or(index);
                self.ranges.push((range.begin, range.end, unit));
            }
        }
    }

    fn dwarf(&self, section: Section) -> Option<&'s Dwarf<Slice<'s>>> {
        match section {
            Section::Main | Section::Types => Some(self.dwarf),
            Section::Shared => self.dwarf.sup(),
            Section::Part(number) | Section::TypesOfPart(number) => {
                self.parts.get(number as usize).map(|part| &part.dwarf)
            }
        }
    }

    fn plain(&self, index: u32) -> Option<Unit<Slice<'s>>> {
        let (header, section) = self.headers.get(index as usize)?;
        self.dwarf(*section)?.unit(*header).ok()
    }

    /// A unit, with the debug information that it is in.
    pub(super) fn open(&self, index: u32) -> Option<(&'s Dwarf<Slice<'s>>, Unit<Slice<'s>>)> {
        let (_, section) = self.headers.get(index as usize)?;
        let mut unit = self.plain(index)?;
        let skeleton = self.skeletons.get(&index);
        if let Some(skeleton) = skeleton.and_then(|it| self.plain(*it)) {
            unit.copy_relocated_attributes(&skeleton);
        }
        Some((self.dwarf(*section)?, unit))
    }

    /// The units that may have an address, the likeliest first.
    pub(super) fn at(&self, address: u64) -> impl Iterator<Item = u32> {
        let end = self.ranges.partition_point(|it| it.0 <= address);
        let before = self.ranges.get(..end).unwrap_or_default();
        // Ranges of units hardly ever overlap, but one may hold others.
        let near = before.iter().rev().take(64);
        near.filter(move |it| address < it.1).map(|it| it.2)
    }

    /// The entry that an attribute refers to.
    pub(super) fn referred(&self, from: u32, value: AttributeValue<Slice<'s>>) -> Option<Place> {
        match value {
            AttributeValue::UnitRef(offset) => Some(Place {
                unit: from,
                offset: offset.0,
            }),
            AttributeValue::DebugInfoRef(offset) => {
                let section = match self.headers.get(from as usize)?.1 {
                    Section::Types => Section::Main,
                    Section::TypesOfPart(number) => Section::Part(number),
                    section => section,
                };
                self.in_section(section, offset.0)
            }
            AttributeValue::DebugInfoRefSup(offset) => self.in_section(Section::Shared, offset.0),
            AttributeValue::DebugTypesRef(signature) => self.signatures().get(&signature).copied(),
            _ => None,
        }
    }

    fn in_section(&self, section: Section, offset: usize) -> Option<Place> {
        // Units of a section are in the order of their offsets, and those of parts are last.
        let number = |of: Section| match of {
            Section::Main => (0, 0),
            Section::Types => (1, 0),
            Section::Shared => (2, 0),
            Section::Part(number) => (3, 2 * u64::from(number)),
            Section::TypesOfPart(number) => (3, 2 * u64::from(number) + 1),
        };
        let wanted = number(section);
        let end = self.headers.partition_point(|(header, of)| {
            let of = number(*of);
            let is_before = || header.debug_info_offset().is_some_and(|it| it.0 <= offset);
            of < wanted || of == wanted && is_before()
        });
        let unit = end.checked_sub(1)?;
        let (header, of) = self.headers.get(unit)?;
        let within = offset.checked_sub(header.debug_info_offset()?.0)?;
        let is_there = *of == section && within < header.length_including_self();
        is_there.then_some(Place {
            unit: unit as u32,
            offset: within,
        })
    }

    fn signatures(&self) -> &HashMap<DebugTypeSignature, Place> {
        self.signatures.get_or_init(|| {
            let all = self.headers.iter().enumerate();
            let types = all.filter_map(|(index, (header, _))| match header.type_() {
                UnitType::Type {
                    type_signature,
                    type_offset,
                }
                | UnitType::SplitType {
                    type_signature,
                    type_offset,
                } => Some((
                    type_signature,
                    Place {
                        unit: index as u32,
                        offset: type_offset.0,
                    },
                )),
                _ => None,
            });
            types.collect()
        })
    }
}

fn is_of_type(header: &UnitHeader<Slice<'_>>) -> bool {
    matches!(
        header.type_(),
        UnitType::Type { .. } | UnitType::SplitType { .. }
    )
}
