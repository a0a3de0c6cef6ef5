//! The picture of one metric, for documents and viewers that run no script.
//!
//! Stage: output.

use std::fmt::Write as _;

use super::colors;
use super::graph::{Graph, Names};
use super::layout::{FRAME_HEIGHT, WIDTH, attribute};
use crate::text;

/// The free space at the left and at the right, in pixels. Inferno's drawing has the same.
const MARGIN: usize = 10;

/// The width of the frame that holds all others, in pixels.
const INNER: usize = WIDTH - 2 * MARGIN;

/// The narrowest frame of the picture, in pixels. The page has also narrower ones.
const NARROWEST: f64 = 2.0;

/// The widths of characters, in pixels: of the monospaced font in frames, and of the widest usual fonts in the
/// title and the subtitle.
const FRAME_CHARACTER: f64 = 7.3;
const TITLE_CHARACTER: f64 = 10.0;
const SUBTITLE_CHARACTER: f64 = 7.0;

const STYLE: &str = "\
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;fill:#1a1a1a;white-space:pre}
text.t{font:bold 17px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
text.s{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:#555}
.v{fill-opacity:.65}
.b{fill:#fff}";

const DARK_STYLE: &str = "text{fill:#f2f2f2}text.s{fill:#aaa}.b{fill:#16181d}";

const PAGE_STYLE: &str = include_str!("page.css");

/// Draws the picture, and leaves the SVG open.
pub(super) fn draw(graph: &Graph, names: &Names<'_>, svg: &mut String) {
    let mut heading = String::new();
    let mut y = 12;
    for line in wrap(&graph.heading.title, " ", INNER as f64 / TITLE_CHARACTER) {
        y += 22;
        text(&mut heading, "t", MARGIN, y - 6, &line);
    }
    let subtitle = graph.heading.subtitle.join(" · ");
    for line in wrap(&subtitle, " · ", INNER as f64 / SUBTITLE_CHARACTER) {
        y += 18;
        text(&mut heading, "s", MARGIN, y - 4, &line);
    }
    y = legend(names, y, &mut heading) + 8;

    let drawn: Vec<_> = graph
        .layout
        .places
        .iter()
        .filter_map(|place| {
            let percent = |name| {
                attribute(&place.rect, name)?
                    .trim_end_matches('%')
                    .parse()
                    .ok()
            };
            let width: f64 = percent("width")?;
            let pixels = width / 100.0 * INNER as f64;
            let left: f64 = percent("x")?;
            let top: usize = attribute(&place.rect, "y")?.parse().ok()?;
            (pixels >= NARROWEST).then_some((place, left, top, pixels))
        })
        .collect();
    let top = drawn.iter().map(|(_, _, top, _)| *top).min().unwrap_or(0);
    let height = y + graph.layout.bottom - top + MARGIN;
    let (light, dark) = (colors::style(false), colors::style(true));
    // Writing to a String can't fail.
    let _ = writeln!(
        svg,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\">\n<style>\n{STYLE}\n{light}\n\
         @media (prefers-color-scheme:dark){{{DARK_STYLE}{dark}}}\n{PAGE_STYLE}</style>\n<g id=\"picture\">\n\
         <rect class=\"b\" width=\"100%\" height=\"100%\"/>\n{heading}\
         <svg id=\"frames\" x=\"{MARGIN}\" y=\"{}\" width=\"{INNER}\" height=\"{}\">",
        y as i64 - top as i64,
        // Otherwise the base of a graph whose narrow top is not drawn would be cut off.
        graph.layout.bottom
    );
    for (place, left, top, pixels) in drawn {
        let frame = place.frame.and_then(|it| graph.folded.frames.get(it));
        let value = frame.map_or(graph.folded.sum, |frame| frame.value);
        let error = frame.map_or(0, |frame| frame.error);
        let color = frame.map_or_else(colors::Colors::of_all, |it| names.colors.color(it.name));
        let amount = graph.metric.format(value);
        let name = frame.and_then(|it| names.names.get(it.name as usize));
        let labels = frame.and_then(|it| names.labels.get(it.name as usize));
        let mut title = labels.map_or("all", |it| &it.full).to_owned();
        title.push_str(&name.map_or_else(String::new, |name| name.suffix()));
        let share = text::share(value, graph.folded.sum);
        let _ = write!(
            svg,
            "<g><title>{}: {amount}{}, {share}</title><rect class=\"c{color}\" {}/>",
            escape(&title),
            text::plus_minus(error, |error| graph.metric.format(error)),
            place.rect
        );
        let room = ((pixels - 6.0) / FRAME_CHARACTER).max(0.0) as usize;
        let label = labels.map_or_else(|| "all".to_owned(), |it| it.fit(room));
        if room >= 3 {
            let left = left + 100.0 * 3.0 / INNER as f64;
            let y = top + FRAME_HEIGHT - 5;
            let _ = write!(svg, "<text x=\"{left:.3}%\" y=\"{y}\">{}", escape(&label));
            if label.chars().count() + amount.chars().count() + 2 <= room {
                let _ = write!(svg, " <tspan class=\"v\">{amount}</tspan>");
            }
            svg.push_str("</text>");
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n</g>\n");
}

/// Writes the meaning of colors below `y`, and returns where it ends.
fn legend(names: &Names<'_>, mut y: usize, svg: &mut String) -> usize {
    const SQUARE: usize = 12;
    let mut x = WIDTH;
    for (color, part) in &names.colors.legend {
        let width = (part.chars().count() as f64 * SUBTITLE_CHARACTER) as usize + SQUARE + 22;
        if x + width > WIDTH - MARGIN {
            (x, y) = (MARGIN, y + 20);
        }
        let top = y - SQUARE - 3;
        let _ = writeln!(
            svg,
            "<rect class=\"c{color}\" x=\"{x}\" y=\"{top}\" width=\"{SQUARE}\" height=\"{SQUARE}\"/>"
        );
        text(svg, "s", x + SQUARE + 5, y - 4, part);
        x += width;
    }
    y
}

fn text(svg: &mut String, class: &str, x: usize, y: usize, text: &str) {
    let text = escape(text);
    // Writing to a String can't fail.
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"
    );
}

/// Breaks a text into lines, between parts where it can, else between words, else anywhere.
fn wrap(text: &str, separator: &str, width: f64) -> Vec<String> {
    let width = width as usize;
    let mut lines: Vec<String> = Vec::new();
    for part in text.split(separator) {
        match lines.last_mut() {
            Some(line) if length(line) + length(separator) + length(part) <= width => {
                line.push_str(separator);
                line.push_str(part);
            }
            _ if length(part) <= width => lines.push(part.to_owned()),
            _ if separator != " " => lines.extend(wrap(part, " ", width as f64)),
            _ => {
                let characters: Vec<char> = part.chars().collect();
                let pieces = characters.chunks(width.max(1));
                lines.extend(pieces.map(|piece| piece.iter().collect::<String>()));
            }
        }
    }
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Makes a text safe in XML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that lines break between parts first, then between words, then anywhere, and keep every character.
    #[test]
    fn lines_break_at_the_best_place() {
        for (text, expected) in [
            ("one · two · three", vec!["one · two", "three"]),
            ("one · words of a part", vec!["one", "words of a", "part"]),
            ("abcdefghijklmnop", vec!["abcdefghij", "klmnop"]),
            ("", vec![""]),
        ] {
            assert_eq!(wrap(text, " · ", 10.0), expected);
        }
    }
}
