//! The variables of a function and where they are, and the variables of a unit.
//!
//! Stage: types. Runs in a reader. Only plain places are read: a register, a slot of the frame, an address. Must not know the code.

use gimli::{AttributeValue, Expression, Operation, Register, UnitOffset, constants};

use super::debug_info::{DebugInfo, Entry, Loaded};
use super::names::Names;
use super::units::{Place, Slice};

/// Most variables of a function, with each of their places.
const MAX_VARIABLES: usize = 4096;

/// Where a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// In a register, by its number in DWARF.
    Register(u16),
    /// In the frame, from its base.
    Frame(i64),
}

/// A variable, for a range of addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variable {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) spot: Spot,
    /// Its type.
    pub(super) of: Place,
}

/// What offsets in the frame are relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameBase {
    /// The stack pointer before the call.
    Cfa,
    Register(u16),
}

/// The base of a function's frame.
pub(super) fn frame_base(info: &DebugInfo<'_>, function: Place) -> Option<FrameBase> {
    let (unit, entry) = info.entry(function)?;
    let expression = entry
        .attr_value(constants::DW_AT_frame_base)?
        .exprloc_value()?;
    match single(&unit, expression)? {
        Operation::CallFrameCFA => Some(FrameBase::Cfa),
        Operation::Register { register } => Some(FrameBase::Register(register.0)),
        _ => None,
    }
}

/// The only operation of an expression.
fn single<'s>(
    unit: &Loaded<'s>,
    expression: Expression<Slice<'s>>,
) -> Option<Operation<Slice<'s>>> {
    let mut operations = expression.operations(unit.unit.encoding());
    let first = operations.next().ok()??;
    match operations.next() {
        Ok(None) => Some(first),
        _ => None,
    }
}

fn spot<'s>(unit: &Loaded<'s>, expression: Expression<Slice<'s>>) -> Option<Spot> {
    match single(unit, expression)? {
        Operation::Register {
            register: Register(number),
        } => Some(Spot::Register(number)),
        Operation::FrameOffset { offset } => Some(Spot::Frame(offset)),
        _ => None,
    }
}

/// The variables and parameters of a function, those of functions inlined into it included.
pub(super) fn of_function(names: &Names<'_, '_>, function: Place) -> Vec<Variable> {
    let mut found = Vec::new();
    let _ = collect(names, function, &mut found);
    found
}

fn collect(names: &Names<'_, '_>, function: Place, found: &mut Vec<Variable>) -> Option<()> {
    let info = names.info;
    let loaded = info.load(function.unit)?;
    let start = UnitOffset(function.offset);
    let mut raw = loaded.unit.entries_raw(Some(start)).ok()?;
    let first = raw.read_abbreviation().ok()??;
    raw.skip_attributes(first.attributes()).ok()?;
    if !first.has_children() {
        return None;
    }
    let mut count = 0;
    while !raw.is_empty() && raw.next_depth() > 0 && found.len() < MAX_VARIABLES {
        let offset = raw.next_offset();
        let Some(abbreviation) = raw.read_abbreviation().ok()? else {
            continue;
        };
        count += 1;
        let is_variable = matches!(
            abbreviation.tag(),
            constants::DW_TAG_variable | constants::DW_TAG_formal_parameter
        );
        if !is_variable {
            raw.skip_attributes(abbreviation.attributes()).ok()?;
            continue;
        }
        let mut attributes = Vec::new();
        raw.read_attributes(abbreviation.attributes(), &mut attributes)
            .ok()?;
        let entry = Entry::new(abbreviation.tag(), false, attributes, offset);
        add(names, &loaded, function.unit, &entry, found);
    }
    info.spend(count).then_some(())
}

fn add<'s>(
    names: &Names<'_, 's>,
    unit: &Loaded<'s>,
    index: u32,
    entry: &Entry<'s>,
    found: &mut Vec<Variable>,
) -> Option<()> {
    let location = entry.attr_value(constants::DW_AT_location)?;
    let place = Place {
        unit: index,
        offset: entry.offset().0,
    };
    let of = variable_type(names, place, entry)?;
    if let AttributeValue::Exprloc(expression) = location {
        found.push(Variable {
            begin: 0,
            end: u64::MAX,
            spot: spot(unit, expression)?,
            of,
        });
        return Some(());
    }
    let dwarf = names.info.dwarf_of(unit);
    let mut ranges = dwarf.attr_locations(&unit.unit, location).ok()??;
    while let Ok(Some(range)) = ranges.next()
        && found.len() < MAX_VARIABLES
    {
        if let Some(spot) = spot(unit, range.data) {
            found.push(Variable {
                begin: range.range.begin,
                end: range.range.end,
                spot,
                of,
            });
        }
    }
    Some(())
}

/// The type of a variable, which an inlined one has where it was written.
fn variable_type<'s>(names: &Names<'_, 's>, place: Place, entry: &Entry<'s>) -> Option<Place> {
    let (mut at, mut entry) = (place, entry.clone());
    // Constructors have two copies of the place where they were written.
    for _ in 0..4 {
        if let Some(of) = names.type_of(at, &entry) {
            return Some(of);
        }
        at = names
            .reference(at, &entry, constants::DW_AT_abstract_origin)
            .or_else(|| names.reference(at, &entry, constants::DW_AT_specification))?;
        (_, entry) = names.info.entry(at)?;
    }
    None
}

/// A variable at a fixed address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Global {
    pub(super) address: u64,
    pub(super) of: Place,
}

/// The variables of a unit that are at fixed addresses, those in functions included.
pub(super) fn of_unit(names: &Names<'_, '_>, unit: u32) -> Vec<Global> {
    let mut found = Vec::new();
    let _ = collect_globals(names, unit, &mut found);
    found.sort_unstable_by_key(|it| it.address);
    found
}

fn collect_globals(names: &Names<'_, '_>, index: u32, found: &mut Vec<Global>) -> Option<()> {
    let info = names.info;
    let loaded = info.load(index)?;
    let mut raw = loaded.unit.entries_raw(None).ok()?;
    let mut count = 0;
    while !raw.is_empty() && found.len() < MAX_VARIABLES {
        let offset = raw.next_offset();
        let Some(abbreviation) = raw.read_abbreviation().ok()? else {
            continue;
        };
        count += 1;
        if abbreviation.tag() != constants::DW_TAG_variable {
            raw.skip_attributes(abbreviation.attributes()).ok()?;
            continue;
        }
        let mut attributes = Vec::new();
        raw.read_attributes(abbreviation.attributes(), &mut attributes)
            .ok()?;
        let entry = Entry::new(abbreviation.tag(), false, attributes, offset);
        let place = Place {
            unit: index,
            offset: offset.0,
        };
        if let Some(address) = fixed_address(info, &loaded, &entry)
            && let Some(of) = variable_type(names, place, &entry)
        {
            found.push(Global { address, of });
        }
    }
    info.spend(count).then_some(())
}

fn fixed_address<'s>(info: &DebugInfo<'s>, unit: &Loaded<'s>, entry: &Entry<'s>) -> Option<u64> {
    let expression = entry
        .attr_value(constants::DW_AT_location)?
        .exprloc_value()?;
    match single(unit, expression)? {
        Operation::Address { address } => Some(address),
        Operation::AddressIndex { index } => info.dwarf_of(unit).address(&unit.unit, index).ok(),
        _ => None,
    }
}

/// The type of what is at an offset in a type: a member of a structure, or an element of an array.
pub(super) fn within(names: &Names<'_, '_>, of: Place, offset: u64) -> Option<Place> {
    let (mut of, mut offset) = (of, offset);
    for _ in 0..16 {
        let (bare, entry) = names.bare(of)?;
        match entry.tag() {
            constants::DW_TAG_structure_type
            | constants::DW_TAG_class_type
            | constants::DW_TAG_union_type => {
                let tags = [constants::DW_TAG_member, constants::DW_TAG_inheritance];
                let members = names.info.children(bare, &tags);
                let at = |member: &Entry<'_>| {
                    let value = member.attr_value(constants::DW_AT_data_member_location);
                    value.map_or(Some(0), |it| it.udata_value())
                };
                let is_static = |it: &Entry<'_>| it.has_attr(constants::DW_AT_external);
                // Of a union, only one member can be meant.
                if entry.tag() == constants::DW_TAG_union_type && members.len() > 1 {
                    return None;
                }
                let member = members
                    .iter()
                    .filter(|it| !is_static(it) && at(it).is_some_and(|at| at <= offset))
                    .max_by_key(|it| at(it))?;
                offset -= at(member)?;
                of = names.type_of(bare, member)?;
            }
            constants::DW_TAG_array_type => {
                of = names.type_of(bare, &entry)?;
                let element = names.sized(of)?.bytes;
                offset = offset.checked_rem(element)?;
            }
            constants::DW_TAG_pointer_type if offset == 0 => return Some(bare),
            _ => return None,
        }
    }
    None
}

/// The types of a function's parameters, and the type of its result.
pub(super) fn signature(
    names: &Names<'_, '_>,
    function: Place,
) -> (Vec<Option<Place>>, Option<Place>) {
    let mut at = function;
    let mut parameters = Vec::new();
    let mut result = None;
    for _ in 0..8 {
        let Some((_, entry)) = names.info.entry(at) else {
            break;
        };
        if parameters.is_empty() {
            let children = names
                .info
                .children(at, &[constants::DW_TAG_formal_parameter]);
            parameters = children
                .iter()
                .map(|it| {
                    let place = Place {
                        unit: at.unit,
                        offset: it.offset().0,
                    };
                    variable_type(names, place, it)
                })
                .collect();
        }
        result = result.or_else(|| names.type_of(at, &entry));
        let next = names
            .reference(at, &entry, constants::DW_AT_abstract_origin)
            .or_else(|| names.reference(at, &entry, constants::DW_AT_specification));
        match next {
            Some(next) if next != at => at = next,
            _ => break,
        }
    }
    (parameters, result)
}
