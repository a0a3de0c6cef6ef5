//! The type of a site's blocks, for people.
//!
//! Stage: output.

use crate::join::{Site, StackId};
use crate::output::report_input::ReportInput;
use crate::output::site_types::{Blocks, Elements, Number, found_by};
use crate::text::{count, escape, plus_minus};

/// The type of what a stack allocates, and how it was found, in at most `width` characters; `None` if it is unknown.
pub(super) fn of_stack(input: &ReportInput<'_>, stack: StackId, width: usize) -> Option<String> {
    let it = input.symbols.types.of(stack)?;
    let way = found_by(it.way);
    let room = width.saturating_sub("type  ()".len() + way.len());
    let name = input.fitted_type(&escape(&it.name), room);
    Some(format!("type {name} ({way})"))
}

/// The same of a site, and the number of elements of its blocks.
pub(super) fn of_site(input: &ReportInput<'_>, site: &Site, width: usize) -> [String; 2] {
    let block_type = input.block_type(site);
    let name = block_type.and_then(|_| of_stack(input, site.stack, width));
    let elements = Elements::of(input, site).zip(block_type);
    let elements = elements.map(|(it, of)| words(&it, site, of.is_capacity));
    [name.unwrap_or_default(), elements.unwrap_or_default()]
}

/// The same of one block, with the number of its elements.
pub(super) fn of_block(
    input: &ReportInput<'_>,
    stack: StackId,
    size: u64,
    width: usize,
) -> Option<String> {
    let it = input.symbols.types.of(stack)?;
    let words = match it.elements(1, size) {
        Some(number) if it.is_capacity => format!(", room for {}", count(number)),
        Some(number) if number != 1 => format!(", {} of them", count(number)),
        _ => String::new(),
    };
    let name = of_stack(input, stack, width.saturating_sub(words.len()))?;
    Some(name + &words)
}

/// `room for 16 in each block, 48 in live blocks`; empty if each block is one element.
fn words(elements: &Elements<'_>, site: &Site, is_capacity: bool) -> String {
    if elements.each == Some(1) && !is_capacity {
        return String::new();
    }
    let totals = &site.totals;
    let kinds = [
        (Blocks::Live, totals.live_allocations, "live blocks"),
        (Blocks::Left, totals.left_allocations, "blocks left at exit"),
        (Blocks::Allocated, totals.allocations, "all blocks"),
    ];
    let some = kinds.into_iter().find(|(_, blocks, _)| *blocks > 0);
    let sum = some.and_then(|(blocks, number, words)| {
        // One block has what each has.
        let is_said = number == 1 && elements.each.is_some();
        let sum = elements.count(totals, blocks).filter(|_| !is_said)?;
        Some(format!("{} in {words}", number_words(sum)))
    });
    let each = elements
        .each
        .map(|each| format!("{} in each block", count(each)));
    let parts: Vec<_> = [each, sum].into_iter().flatten().collect();
    match is_capacity {
        true if !parts.is_empty() => format!("room for {}", parts.join(", ")),
        _ => parts.join(", "),
    }
}

/// A number of elements: `48`, `48 ± 12`.
pub(super) fn number_words(number: Number) -> String {
    let error = plus_minus(number.error, count);
    format!("{}{error}", count(number.value))
}
