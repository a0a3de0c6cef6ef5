//! The lines of a call stack, from the user's function outwards, with recursion folded.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use crate::join::{Completeness, StackId};
use crate::output::frame::StackFrame;
use crate::output::report_input::ReportInput;
use crate::output::shorten;
use crate::output::shown::language_name;
use crate::output::style::Style;
use crate::text::escape;

/// The largest number of frames that are shown. Deeper frames rarely help, and JSON has them all.
const MAX_LINES: usize = 48;

/// The longest cycle of functions that is folded.
const MAX_CYCLE: usize = 6;

/// The indent that the caller writes before each line.
pub(super) const INDENT: usize = 5;

/// Writes the first line of a numbered stack: an amount, and the function of the user.
pub(super) fn write_title(
    page: &mut Page<'_, '_>,
    rank: usize,
    amount: &str,
    stack: StackId,
) -> io::Result<()> {
    let room = page.width.saturating_sub(amount.chars().count() + 7);
    let title = title(page.input, stack, room, page.style);
    let amount = page.style.number(amount);
    writeln!(page.out, "{rank:>3}. {amount}  {title}")
}

/// Writes the frames of a numbered stack, and an empty line.
pub(super) fn write_frames(page: &mut Page<'_, '_>, stack: StackId) -> io::Result<()> {
    for line in lines(page.input, stack, page.width, page.style) {
        writeln!(page.out, "     {line}")?;
    }
    writeln!(page.out)
}

/// The lines of a stack.
pub(super) fn lines(
    input: &ReportInput<'_>,
    stack: StackId,
    width: usize,
    style: Style,
) -> Vec<String> {
    let all = input.stack(stack);
    let user = input.user_frame(stack, &all);
    let mut lines = Vec::new();
    let wrappers = &all[..user];
    if !wrappers.is_empty() {
        let words = via(input, wrappers, width.saturating_sub(INDENT));
        lines.push(style.dim(&words));
    }
    let frames = input.without_interpreter(stack, &all, user);
    let left_out = all.len() - user - frames.len();
    let mut at = 0;
    while at < frames.len() {
        if lines.len() >= MAX_LINES {
            let rest = frames.len() - at;
            lines.push(style.dim(&format!("… {rest} more frames")));
            break;
        }
        let (cycle, times) = repetition(&frames[at..]);
        for frame in &frames[at..at + cycle] {
            lines.push(line(input, frame, width.saturating_sub(INDENT), style));
        }
        if times > 1 {
            lines.push(style.dim(&match cycle {
                1 => format!("… the frame above {} more times", times - 1),
                _ => format!("… the {cycle} frames above {} more times", times - 1),
            }));
        }
        at += cycle * times;
    }
    if left_out > 0 {
        let (frames, are) = if left_out == 1 {
            ("frame", "is")
        } else {
            ("frames", "are")
        };
        lines.push(style.dim(&format!(
            "({left_out} {frames} of the interpreter {are} left out; --full-stacks shows all)"
        )));
    }
    match input.completeness(stack).0 {
        Completeness::Complete => {}
        Completeness::Truncated => lines.push(style.dim("… deeper than the frame limit")),
        Completeness::Broken if all.is_empty() => lines.push(style.dim("… no stack")),
        Completeness::Broken => lines.push(style.dim("… the stack could not be followed further")),
    }
    lines
}

/// The function of the user in a stack, and its place in brief; empty if there is no stack.
pub(super) fn title(input: &ReportInput<'_>, stack: StackId, width: usize, style: Style) -> String {
    let frames = input.stack(stack);
    let Some(frame) = frames.get(input.user_frame(stack, &frames)) else {
        return "[no stack]".to_owned();
    };
    let place = match (frame.short_place(), frame.module) {
        // A frame without a name is labelled with its module, or its file, already.
        (Some(_), _) if frame.is_labelled_with_file() => String::new(),
        (Some(place), _) => escape(&place).into_owned(),
        (None, Some(module)) if frame.function.is_some() => {
            format!("[{}]", escape(module.name()))
        }
        _ => String::new(),
    };
    // The stack below has it, too.
    let place = if place.chars().count() > width / 2 {
        String::new()
    } else {
        place
    };
    beside(input, &input.label(frame), &place, width, style)
}

/// The line for the wrappers that a stack begins with.
fn via(input: &ReportInput<'_>, wrappers: &[StackFrame<'_>], width: usize) -> String {
    const ARROW: &str = " ← ";
    let count = match wrappers.len() {
        1 | 2 => String::new(),
        many => format!(" ({many} frames)"),
    };
    // The outermost one is what the user's function called.
    let shown = match wrappers {
        [one] => vec![one],
        [first, .., last] => vec![first, last],
        [] => Vec::new(),
    };
    let room = width.saturating_sub("via ".len() + ARROW.len() + count.len());
    let names = shown.iter().map(|frame| input.label(frame));
    let names: Vec<_> = names
        .map(|name| shorten::function_path(&name, room / shown.len().max(1)))
        .collect();
    format!("via {}{count}", names.join(ARROW))
}

/// The shortest cycle of frames at the start that occurs more than twice, and its count. Returns one frame,
/// once, if there is none.
fn repetition(frames: &[StackFrame<'_>]) -> (usize, usize) {
    for cycle in 1..=MAX_CYCLE.min(frames.len() / 3) {
        let first = &frames[..cycle];
        let times = frames
            .chunks_exact(cycle)
            .take_while(|chunk| {
                chunk.iter().zip(first).all(|(a, b)| {
                    // Frames are equal if their functions have the same name, whatever the line. Without a
                    // name, their addresses are compared. Each file of Python can have a function of the same name.
                    (a.function, a.inlined, a.language) == (b.function, b.inlined, b.language)
                        && (a.function.is_some() || a.location == b.location)
                        && (a.language.is_none() || a.file == b.file)
                })
            })
            .count();
        if times > 2 {
            return (cycle, times);
        }
    }
    (1, 1)
}

fn line(input: &ReportInput<'_>, frame: &StackFrame<'_>, width: usize, style: Style) -> String {
    let label = input.label(frame);
    // The function's path, as far as it leaves room for a short place.
    let wanted = shorten::function_path(&label, width * 2 / 3)
        .chars()
        .count()
        + "  (…)".chars().count();
    let places = places(frame, width);
    let fitting = places
        .iter()
        .find(|place| wanted + place.chars().count() <= width);
    let place = fitting.or(places.last()).map_or("", String::as_str);
    beside(input, &label, place, width, style)
}

/// The place of a frame, from the longest text to the shortest.
fn places(frame: &StackFrame<'_>, width: usize) -> Vec<String> {
    let inlined = if frame.inlined { "inlined" } else { "" };
    let at = |file: &str| match frame.line {
        0 => file.to_owned(),
        line => format!("{file}:{line}"),
    };
    // A frame without a name is labelled with its module, or its language, already.
    let within = match frame.language {
        None => frame.module.map(|module| escape(module.name())),
        Some(_) => Some(language_name(frame.language).into()),
    };
    let module = within
        .filter(|_| frame.function.is_some())
        .map(|name| format!("[{}]", shorten::cut_front(&name, width / 4)));
    let module = module.unwrap_or_default();
    let joined = |parts: [&str; 3]| {
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(" ")
    };
    let Some(file) = frame.file else {
        return vec![joined(["", inlined, &module])];
    };
    let path = escape(file);
    let name = frame.short_file().unwrap_or(file);
    let name = shorten::cut_front(&escape(name), width / 4);
    // The end of a path is the most useful part.
    let short = shorten::cut_front(&path, width / 3);
    vec![
        joined([&at(&path), inlined, &module]),
        joined([&at(&short), inlined, &module]),
        joined([&at(&name), inlined, &module]),
        joined([&at(&name), "", &module]),
        at(&name),
    ]
}

/// A function's name, shortened to the room beside its place.
fn beside(
    input: &ReportInput<'_>,
    function: &str,
    place: &str,
    width: usize,
    style: Style,
) -> String {
    let room = width.saturating_sub(place.chars().count() + 2).max(16);
    let function = input.fitted(function, room);
    if place.is_empty() {
        return function;
    }
    format!("{function}  {}", style.dim(place))
}
