//! The lines of a call stack, innermost first, with recursion folded.
//!
//! Stage: output.

use super::style::Style;
use crate::join::{Completeness, StackId};
use crate::output::frame::{StackFrame, file_name};
use crate::output::report_input::ReportInput;
use crate::output::shorten;
use crate::text::escape;

/// The largest number of frames that are shown. Deeper frames rarely help, and JSON has them all.
const MAX_LINES: usize = 48;

/// The longest cycle of functions that is folded.
const MAX_CYCLE: usize = 6;

/// The indent that the caller writes before each line.
const INDENT: usize = 5;

/// The lines of a stack.
pub(super) fn lines(
    input: &ReportInput<'_>,
    stack: StackId,
    width: usize,
    style: Style,
) -> Vec<String> {
    let frames = input.stack(stack);
    let mut lines = Vec::new();
    let mut at = 0;
    while at < frames.len() {
        if lines.len() >= MAX_LINES {
            let rest = frames.len() - at;
            lines.push(style.dim(&format!("… {rest} more frames")));
            break;
        }
        let (cycle, times) = repetition(&frames[at..]);
        for frame in &frames[at..at + cycle] {
            lines.push(line(frame, width.saturating_sub(INDENT), style));
        }
        if times > 1 {
            lines.push(style.dim(&match cycle {
                1 => format!("… the frame above {} more times", times - 1),
                _ => format!("… the {cycle} frames above {} more times", times - 1),
            }));
        }
        at += cycle * times;
    }
    match input.completeness(stack).0 {
        Completeness::Complete => {}
        Completeness::Truncated => lines.push(style.dim("… deeper than the frame limit")),
        Completeness::Broken if frames.is_empty() => lines.push(style.dim("… no stack")),
        Completeness::Broken => lines.push(style.dim("… the stack could not be followed further")),
    }
    lines
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
                    // name, their addresses are compared.
                    (a.function, a.inlined) == (b.function, b.inlined)
                        && (a.function.is_some() || a.location == b.location)
                })
            })
            .count();
        if times > 2 {
            return (cycle, times);
        }
    }
    (1, 1)
}

fn line(frame: &StackFrame<'_>, width: usize, style: Style) -> String {
    let mut place = Vec::new();
    if let Some(file) = frame.file {
        // The end of a path is the most useful part, and function names need the space.
        let mut file = shorten::cut_front(&escape(file), width / 2 - 8);
        if frame.line > 0 {
            file.push_str(&format!(":{}", frame.line));
        }
        place.push(file);
    }
    if frame.inlined {
        place.push("inlined".to_owned());
    }
    // A frame without a name is labelled with its module already.
    if frame.function.is_some()
        && let Some(module) = frame.module
    {
        let module = escape(file_name(&module.path));
        place.push(format!("[{}]", shorten::cut_front(&module, width / 4)));
    }
    let place = place.join(" ");
    let room = width.saturating_sub(place.chars().count() + 2).max(16);
    let function = shorten::function(&frame.label(), room);
    if place.is_empty() {
        return function;
    }
    format!("{function}  {}", style.dim(&place))
}
