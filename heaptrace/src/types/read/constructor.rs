//! Recognizes constructors by their names, and those that are inlined behind a call.
//!
//! Stage: types. Runs in a reader. Must not know what registers hold.

use gimli::{UnitOffset, constants};

use super::debug_info::Entry;
use super::frames::Around;
use super::names::Names;
use super::units::Place;
use crate::symbolize::demangle_bare;
use crate::types::parsed::parsed;
use crate::types::protocol::SizedType;

/// An inlined constructor begins so many bytes after the call at most.
const NEAR: u64 = 96;

/// The class that a function constructs, by the function's name; `None` if it is no constructor.
pub(super) fn class_of(function: &str) -> Option<String> {
    let parsed = parsed(function)?;
    let class = parsed.class()?;
    (class.name == parsed.function.name && !class.name.is_empty()).then_some(())?;
    // The scope is all before the last part.
    let end = function.rfind(&format!("::{}", parsed.function.name))?;
    Some(function.get(..end)?.to_owned())
}

/// Whether a symbol is a constructor's: of a whole object, or of the base of one.
pub(super) fn is_constructor(symbol: &str) -> bool {
    symbol.contains("C1E") || symbol.contains("C2E")
}

/// The class whose table of virtual functions a symbol is.
pub(super) fn class_of_table(symbol: &str) -> Option<String> {
    let table = symbol.starts_with("_ZTV").then(|| demangle_bare(symbol))?;
    let class = table.strip_prefix("{vtable(")?.strip_suffix(")}")?;
    Some(class.to_owned())
}

/// The class whose constructor is inlined right behind a call.
pub(super) fn inlined(
    names: &Names<'_, '_>,
    around: &Around,
    returns_to: u64,
) -> Option<SizedType> {
    let info = names.info;
    let scope = *around.functions.first()?;
    let loaded = info.load(scope.unit)?;
    let mut raw = loaded
        .unit
        .entries_raw(Some(UnitOffset(scope.offset)))
        .ok()?;
    let first = raw.read_abbreviation().ok()??;
    raw.skip_attributes(first.attributes()).ok()?;
    if !first.has_children() {
        return None;
    }
    let mut nearest: Option<(u64, SizedType)> = None;
    let mut skipped: Option<isize> = None;
    let mut count = 0;
    while !raw.is_empty() && raw.next_depth() > 0 {
        let (offset, depth) = (raw.next_offset(), raw.next_depth());
        let Some(abbreviation) = raw.read_abbreviation().ok()? else {
            continue;
        };
        count += 1;
        if skipped.is_some_and(|of| depth <= of) {
            skipped = None;
        }
        let is_inlined = abbreviation.tag() == constants::DW_TAG_inlined_subroutine;
        if skipped.is_some() || !is_inlined {
            raw.skip_attributes(abbreviation.attributes()).ok()?;
            continue;
        }
        // Those inlined into another function construct its parts.
        skipped = Some(depth);
        let mut attributes = Vec::new();
        raw.read_attributes(abbreviation.attributes(), &mut attributes)
            .ok()?;
        let entry = Entry::new(
            abbreviation.tag(),
            abbreviation.has_children(),
            attributes,
            offset,
        );
        let mut ranges = info
            .dwarf_of(&loaded)
            .die_ranges(&loaded.unit, &entry)
            .ok()?;
        let mut begins = Vec::new();
        while let Ok(Some(range)) = ranges.next()
            && begins.len() < 64
        {
            begins.push(range.begin);
        }
        let near = returns_to..returns_to.saturating_add(NEAR);
        let Some(begin) = begins.into_iter().filter(|it| near.contains(it)).min() else {
            continue;
        };
        let place = Place {
            unit: scope.unit,
            offset: offset.0,
        };
        if nearest.as_ref().is_none_or(|(at, _)| begin < *at)
            && let Some(class) = constructed_by(names, place)
        {
            nearest = Some((begin, class));
        }
    }
    info.spend(count);
    nearest.map(|(_, class)| class)
}

/// The class that a function constructs.
pub(super) fn constructed_by(names: &Names<'_, '_>, function: Place) -> Option<SizedType> {
    let mut at = function;
    for _ in 0..8 {
        let (_, entry) = names.info.entry(at)?;
        let next = names
            .reference(at, &entry, constants::DW_AT_abstract_origin)
            .or_else(|| names.reference(at, &entry, constants::DW_AT_specification));
        match next {
            Some(next) if next != at => at = next,
            _ => break,
        }
    }
    let (class, tag) = names.info.parent(at)?;
    let is_class = matches!(
        tag,
        constants::DW_TAG_structure_type | constants::DW_TAG_class_type
    );
    let (unit, entry) = names.info.entry(at)?;
    let name = names
        .info
        .text(&unit, entry.attr_value(constants::DW_AT_name)?)?;
    let (unit, of_class) = names.info.entry(class)?;
    let of_class = names
        .info
        .text(&unit, of_class.attr_value(constants::DW_AT_name)?)?;
    let plain = of_class.split('<').next().unwrap_or(&of_class);
    let own = name.split('<').next().unwrap_or(&name);
    (is_class && plain == own).then(|| names.sized(class))?
}
