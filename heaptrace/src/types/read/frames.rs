//! The functions at an address, with those that are inlined there, and what the compiler noted about the call.
//!
//! Stage: types. Runs in a reader. Must not know the code.

use gimli::{AttributeValue, DwAt, UnitOffset, constants};

use super::debug_info::{Code, DebugInfo, Entry, Loaded};
use super::units::Place;
use crate::types::protocol::MAX_INLINED;

/// The type that a `new` expression allocates (`DW_AT_LLVM_alloc_type`).
const ALLOCATED: DwAt = DwAt(0x3e0e);

/// The address that a call returns to: the number before DWARF 5 is that of the call's beginning.
const RETURN_ADDRESSES: [DwAt; 2] = [constants::DW_AT_call_return_pc, constants::DW_AT_low_pc];

/// What is at an address.
pub(super) struct Around {
    /// The function, with its code.
    pub(super) function: Place,
    pub(super) code: Code,
    /// The entries of the functions there, innermost first; the last is the function itself.
    pub(super) functions: Vec<Place>,
    /// The type that the compiler noted for the call.
    pub(super) noted: Option<Place>,
    /// The function that is called.
    pub(super) called: Option<Place>,
}

/// Finds the functions at the last byte of a call.
pub(super) fn around(info: &DebugInfo<'_>, address: u64) -> Option<Around> {
    let (function, code) = info.function(address)?;
    let mut around = Around {
        function,
        code,
        functions: vec![function],
        noted: None,
        called: None,
    };
    let _ = inner(info, address, &mut around);
    around.functions.reverse();
    Some(around)
}

fn inner(info: &DebugInfo<'_>, address: u64, around: &mut Around) -> gimli::Result<()> {
    let unit = around.function.unit;
    let Some(loaded) = info.load(unit) else {
        return Ok(());
    };
    let start = UnitOffset(around.function.offset);
    let mut raw = loaded.unit.entries_raw(Some(start))?;
    let Some(first) = raw.read_abbreviation()? else {
        return Ok(());
    };
    raw.skip_attributes(first.attributes())?;
    if !first.has_children() {
        return Ok(());
    }
    // Entries below this depth are elsewhere.
    let mut skipped: Option<isize> = None;
    let mut count = 0;
    while !raw.is_empty() && raw.next_depth() > 0 {
        let (offset, depth) = (raw.next_offset(), raw.next_depth());
        let Some(abbreviation) = raw.read_abbreviation()? else {
            continue;
        };
        count += 1;
        if skipped.is_some_and(|of| depth <= of) {
            skipped = None;
        }
        let tag = abbreviation.tag();
        let is_block = matches!(
            tag,
            constants::DW_TAG_inlined_subroutine | constants::DW_TAG_lexical_block
        );
        let is_call = matches!(
            tag,
            constants::DW_TAG_call_site | constants::DW_TAG_GNU_call_site
        );
        if skipped.is_some() || !(is_block || is_call) {
            raw.skip_attributes(abbreviation.attributes())?;
            if skipped.is_none() && abbreviation.has_children() && !is_block && !is_call {
                skipped = Some(depth);
            }
            continue;
        }
        let mut attributes = Vec::new();
        raw.read_attributes(abbreviation.attributes(), &mut attributes)?;
        let entry = Entry::new(tag, abbreviation.has_children(), attributes, offset);
        if is_call {
            if returns_to(info, &loaded, &entry) == address.checked_add(1) {
                let refers = |name| {
                    let value = entry.attr_value(name)?;
                    info.referred(unit, value)
                };
                around.noted = refers(ALLOCATED);
                around.called = refers(constants::DW_AT_call_origin)
                    .or_else(|| refers(constants::DW_AT_abstract_origin));
            }
            if entry.has_children() {
                skipped = Some(depth);
            }
            continue;
        }
        if !has(info, &loaded, &entry, address)? {
            skipped = Some(depth);
            continue;
        }
        if tag == constants::DW_TAG_inlined_subroutine && around.functions.len() < MAX_INLINED {
            around.functions.push(Place {
                unit,
                offset: offset.0,
            });
        }
    }
    info.spend(count);
    Ok(())
}

fn returns_to<'s>(info: &DebugInfo<'s>, unit: &Loaded<'s>, call: &Entry<'s>) -> Option<u64> {
    let value = RETURN_ADDRESSES
        .into_iter()
        .find_map(|name| call.attr_value(name))?;
    match value {
        AttributeValue::Addr(address) => Some(address),
        value => {
            let address = info.dwarf_of(unit).attr_address(&unit.unit, value);
            address.ok().flatten()
        }
    }
}

/// Whether the code of an entry has an address. A block without code of its own has that of the entry around it.
fn has<'s>(
    info: &DebugInfo<'s>,
    unit: &Loaded<'s>,
    entry: &Entry<'s>,
    address: u64,
) -> gimli::Result<bool> {
    if entry.tag() == constants::DW_TAG_lexical_block
        && !entry.has_attr(constants::DW_AT_low_pc)
        && !entry.has_attr(constants::DW_AT_ranges)
    {
        return Ok(true);
    }
    let mut ranges = info.dwarf_of(unit).die_ranges(&unit.unit, entry)?;
    while let Some(range) = ranges.next()? {
        if range.begin <= address && address < range.end {
            return Ok(true);
        }
    }
    Ok(false)
}
