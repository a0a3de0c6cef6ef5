//! The places of a flame graph's frames, drawn by inferno.
//!
//! Stage: output. Inferno gets numbers as names, so no text of a traced process reaches it. The numbers are
//! frames of the graph, which the caller puts texts into.

use std::io;

use inferno::flamegraph::{self, Options};

use crate::output::error::OutputError;
use crate::output::folded::{Folded, Frame};

/// The width of the picture, in pixels.
pub(super) const WIDTH: usize = 1200;

/// The height of a frame, in pixels.
pub(super) const FRAME_HEIGHT: usize = 18;

/// The limit for the text that inferno reads: several hundred times that of a large graph.
const MOST_TEXT: usize = 256 << 20;

/// A frame's rectangle.
#[derive(Debug)]
pub(super) struct Place {
    /// The frame, as an index of the graph's frames; `None` for the frame that holds all others.
    pub(super) frame: Option<usize>,
    /// The sum of the values to its left.
    pub(super) x: u64,
    /// The attributes of its `rect` element: its place and its size.
    pub(super) rect: String,
}

/// The drawing of a graph.
#[derive(Debug)]
pub(super) struct Layout {
    /// Where the drawing ends, in pixels.
    pub(super) bottom: usize,
    /// The frames in the order of the graph, callers before callees.
    pub(super) places: Vec<Place>,
}

/// Places the frames of a graph, the innermost at the top.
pub(super) fn of(folded: &Folded) -> Result<Layout, OutputError> {
    let lines = lines(&folded.frames)?;
    let mut options = Options::default();
    options.frame_height = FRAME_HEIGHT;
    options.image_width = Some(WIDTH);
    // Frames that are too narrow were left out before.
    options.min_width = 0.0;
    options.no_javascript = true;
    // Inferno keeps the order of the stacks only in this mode, reversed.
    options.flame_chart = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(
        &mut options,
        lines.iter().rev().map(String::as_str),
        &mut svg,
    )?;
    let svg = String::from_utf8_lossy(&svg);
    let mut places: Vec<_> = svg.split("<g>").skip(1).filter_map(place).collect();
    places.sort_unstable_by_key(|place| place.frame);
    // Frames without a place would be missing in the picture.
    if places.len() != folded.frames.len() + 1 {
        return Err(io::Error::other("inferno has drawn an unknown kind of picture").into());
    }
    let bottom = places.first().and_then(|all| {
        let y: usize = attribute(&all.rect, "y")?.parse().ok()?;
        Some(y + FRAME_HEIGHT)
    });
    Ok(Layout {
        bottom: bottom.unwrap_or(0),
        places,
    })
}

/// The folded stacks, with numbers for frames: `0;1;2 100`.
fn lines(frames: &[Frame]) -> Result<Vec<String>, OutputError> {
    let (mut lines, mut text) = (Vec::new(), 0);
    let mut path: Vec<String> = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        path.truncate(frame.depth);
        path.push(number.to_string());
        if frame.own > 0 {
            text += path.iter().map(|number| number.len() + 1).sum::<usize>();
            if text > MOST_TEXT {
                return Err(OutputError::TooMuch);
            }
            lines.push(format!("{} {}", path.join(";"), frame.own));
        }
    }
    Ok(lines)
}

/// Reads a frame of inferno's drawing: `<title>12 (100 bytes, 5%)</title><rect …/><text …`.
fn place(drawn: &str) -> Option<Place> {
    let (title, rest) = drawn.strip_prefix("<title>")?.split_once('<')?;
    let (name, _) = title.split_once(' ')?;
    let (_, rest) = rest.split_once("<rect ")?;
    let (rect, _) = rest.split_once("/>")?;
    // The color is chosen by the style, and the other attributes are for inferno's own script.
    let (shape, _) = rect.split_once(" fill=")?;
    Some(Place {
        frame: match name {
            "all" => None,
            number => Some(number.parse().ok()?),
        },
        x: attribute(rect, "fg:x")?.parse().ok()?,
        rect: shape.to_owned(),
    })
}

/// The value of an attribute.
pub(super) fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    element.split(' ').find_map(|it| {
        let value = it.strip_prefix(name)?.strip_prefix("=\"")?;
        value.strip_suffix('"')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(depth: usize, value: u64, own: u64) -> Frame {
        Frame {
            depth,
            name: 0,
            value,
            error: 0,
            own,
        }
    }

    /// Check that each frame has the place that follows from the values: a caller spans its callees, and its
    /// own part comes first.
    #[test]
    fn frames_have_their_places() {
        let folded = Folded {
            frames: vec![
                frame(0, 60, 10),
                frame(1, 50, 0),
                frame(2, 50, 50),
                frame(0, 40, 40),
            ],
            sum: 100,
            left_out: 0,
        };
        let layout = of(&folded).unwrap();
        let found: Vec<_> = layout
            .places
            .iter()
            .map(|it| {
                let percent = |name| attribute(&it.rect, name).unwrap().trim_end_matches('%');
                let width: f64 = percent("width").parse().unwrap();
                let y: usize = percent("y").parse().unwrap();
                let level = (layout.bottom - y) / FRAME_HEIGHT;
                (it.frame, it.x, width, level)
            })
            .collect();
        assert_eq!(
            found,
            [
                (None, 0, 100.0, 1),
                (Some(0), 0, 60.0, 2),
                (Some(1), 10, 50.0, 3),
                (Some(2), 10, 50.0, 4),
                (Some(3), 60, 40.0, 2),
            ]
        );
    }
}
