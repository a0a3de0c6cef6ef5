//! The names of sites in the map.
//!
//! Stage: output.

use crate::join::{Kind, StackId};
use crate::output::report_input::ReportInput;
use crate::output::site_types::{MAPPED, UNKNOWN};
use crate::text::escape;

/// The type of what a site allocates, or what stands for it, in at most `width` characters. Safe to print.
pub(super) fn block_type(
    input: &ReportInput<'_>,
    (stack, kind): (StackId, Kind),
    width: usize,
) -> String {
    let known = input.symbols.types.of(stack);
    let name = match kind {
        Kind::Heap => known.map_or(UNKNOWN, |it| &it.name),
        Kind::Mapped => MAPPED,
    };
    input.fitted_type(&escape(name), width)
}

/// The user's function in a stack, and its place, in at most `width` characters. Safe to print.
pub(super) fn site(input: &ReportInput<'_>, stack: StackId, width: usize) -> String {
    let frames = input.stack(stack);
    let Some(frame) = frames.get(input.user_frame(stack, &frames)) else {
        return "[no stack]".to_owned();
    };
    let place = match (frame.short_place(), frame.module) {
        (Some(_), _) if frame.is_labelled_with_file() => String::new(),
        (Some(place), _) => format!("  {}", escape(&place)),
        (None, Some(module)) if frame.function.is_some() => {
            format!("  [{}]", escape(module.name()))
        }
        _ => String::new(),
    };
    let length = place.chars().count();
    let (place, room) = match length + 12 < width {
        true => (place, width - length),
        false => (String::new(), width),
    };
    format!("{}{place}", input.fitted(&input.label(frame), room))
}
