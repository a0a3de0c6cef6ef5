//! What pictures have in common: texts in SVG, and the colors of groups.
//!
//! Stage: output. Knows nothing of what is drawn.

use crate::text::escape;

/// The colors of groups, on white and on black. They are told apart by all eyes (Okabe and Ito).
pub(super) const COLORS: [[&str; 2]; 8] = [
    ["#0072b2", "#56a8dc"],
    ["#e69f00", "#f0b53a"],
    ["#009e73", "#2fc598"],
    ["#cc79a7", "#dd95bd"],
    ["#d55e00", "#f08043"],
    ["#56b4e9", "#8fd0f5"],
    ["#b8a800", "#e8dc3c"],
    ["#7a5cc0", "#a68ce0"],
];

/// A text as the content of an element.
pub(super) fn content(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in escape(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            c => safe.push(c),
        }
    }
    safe
}

/// At most so many characters of a text.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
