//! Shortens names of types to a width.
//!
//! Stage: output. Inner arguments are left out first. What follows the type, as `(nodes)`, stays.

use super::shorten::{cut_middle, without_arguments};

/// The deepest arguments that are kept in a shortened name.
const DEEPEST: usize = 3;

/// Shortens the name of a type to at most `width` characters: `std::map<int, Order> (nodes)` to `std::map<…> (nodes)`.
pub(super) fn fitted(name: &str, width: usize) -> String {
    let length = |text: &str| text.chars().count();
    if length(name) <= width {
        return name.to_owned();
    }
    // What stands for a type has no parts.
    if name.starts_with('(') && name.find(')') == Some(name.len() - 1) {
        return cut_middle(name, width);
    }
    let (path, part) = name.split_at(part_of(name));
    let shorter = (0..=DEEPEST)
        .rev()
        .map(|keep| without_arguments(path, keep, 0) + part);
    let mut forms: Vec<String> = shorter.collect();
    // The namespace is the last that is left out as a whole.
    let bare = without_arguments(path, 0, 0);
    forms.extend(
        bare.rsplit_once("::")
            .map(|(_, own)| format!("…::{own}{part}")),
    );
    let fitting = forms.iter().find(|it| length(it) <= width);
    match fitting {
        Some(fitting) => fitting.clone(),
        None => cut_middle(forms.last().map_or(name, String::as_str), width),
    }
}

/// Where the words begin that say which part of a container a block is: ` (nodes)`.
fn part_of(name: &str) -> usize {
    let begin = name.rfind(" (").filter(|_| name.ends_with(')'));
    let is_word = |at: &usize| {
        let words = name.get(at + 2..name.len() - 1).unwrap_or_default();
        let is_letter = |c: char| c.is_ascii_lowercase() || c == ' ';
        !words.is_empty() && words.chars().all(is_letter)
    };
    begin.filter(is_word).unwrap_or(name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that arguments are left out from the innermost on, and that the part of a container stays.
    #[test]
    fn types_are_shortened_in_steps() {
        let name = "std::unordered_map<std::string, shop::Shelf<std::vector<shop::Item>>> (nodes)";
        for (width, expected) in [
            (80, name),
            (
                75,
                "std::unordered_map<std::string, shop::Shelf<std::vector<…>>> (nodes)",
            ),
            (
                60,
                "std::unordered_map<std::string, shop::Shelf<…>> (nodes)",
            ),
            (40, "std::unordered_map<…> (nodes)"),
            (27, "…::unordered_map<…> (nodes)"),
            (20, "…::unorder…> (nodes)"),
        ] {
            assert_eq!(fitted(name, width), expected, "{width}");
        }
        for (name, width, expected) in [
            ("HashMap<String, Session>", 12, "HashMap<…>"),
            ("shop::Item", 10, "shop::Item"),
            ("shop::cart::Item", 12, "…::Item"),
            ("(unknown)", 5, "(u…n)"),
            ("(unknown)", 9, "(unknown)"),
        ] {
            assert_eq!(fitted(name, width), expected);
        }
    }

    /// Check that no text is longer than its width, whatever it is.
    #[test]
    fn any_text_fits() {
        let deep = "<".repeat(1 << 14);
        for name in [
            "",
            "((((",
            ">>>>",
            " ()",
            "f (x)",
            "日本語の長い名前",
            "::",
            &deep,
        ] {
            for width in [0, 1, 2, 3, 5, 9, 20] {
                assert!(fitted(name, width).chars().count() <= width, "{name}");
            }
        }
    }
}
