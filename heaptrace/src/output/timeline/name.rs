//! The names of the groups of a timeline.
//!
//! Stage: output.

use crate::output::groups::Group;
use crate::output::label::Label;
use crate::output::report_input::ReportInput;
use crate::output::shorten;
use crate::text::escape;

/// The name in at most `width` characters, for people. Safe to print.
pub(super) fn fitted(input: &ReportInput<'_>, by: Label, group: &Group, width: usize) -> String {
    let place = || {
        let frames = input.stack(group.stack?);
        let frame = frames.get(input.user_frame(group.stack?, &frames))?;
        let file = escape(crate::text::file_name(frame.file?)).into_owned();
        Some(format!("  {file}:{}", frame.line))
    };
    let title = group.title();
    match by {
        Label::Stack => {
            let name = input.for_people(&title);
            // Two stacks of one function differ at least often by their lines.
            let place = place()
                .filter(|it| it.len() + 12 < width)
                .unwrap_or_default();
            let room = width.saturating_sub(place.chars().count());
            format!("{}{place}", input.fitted(&escape(&name), room))
        }
        Label::Function => group
            .source_title(width)
            .unwrap_or_else(|| input.fitted(&escape(&input.for_people(&title)), width)),
        Label::Type | Label::Element => input.fitted_type(&escape(&title), width),
        _ => shorten::cut_front(&escape(&title), width),
    }
}
