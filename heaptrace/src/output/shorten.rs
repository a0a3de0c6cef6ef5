//! Shortens long function names to a width.
//!
//! Stage: output. The path and the name distinguish functions best, so parameters and template arguments are
//! cut first.

/// The largest nesting of `<<<T as A>::B as C>::D as E>::f` that is parsed; a crafted name can nest without
/// end.
const MAX_LEADING: u32 = 4;

/// Shortens a function name to at most `width` characters.
pub(crate) fn function(name: &str, width: usize) -> String {
    let fits = |name: &str| name.chars().count() <= width;
    if fits(name) {
        return name.to_owned();
    }
    let name = without_parameters(name);
    if fits(&name) {
        return name;
    }
    // The inner arguments are cut first: `map<string, vector<…>>` says more than `map<…>`.
    for depth in [2, 1, 0] {
        let short = without_arguments(&name, depth);
        if fits(&short) {
            return short;
        }
    }
    cut_front(&without_arguments(&name, 0), width)
}

/// Keeps the end of a text, which is the most useful part of a function name or path.
pub(super) fn cut_front(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    std::iter::once('…')
        .chain(text.chars().skip(count - kept))
        .collect()
}

/// Replaces the last parameter list, and all text behind it, by `(…)`.
fn without_parameters(name: &str) -> String {
    match parameters(name) {
        Some(at) if !name[at..].starts_with("()") => format!("{}(…)", &name[..at]),
        _ => name.to_owned(),
    }
}

/// A function's name without its last parameter list and the text behind it.
pub(super) fn bare(name: &str) -> &str {
    parameters(name).map_or(name, |at| &name[..at])
}

/// The start of the last parameter list.
fn parameters(name: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut open = None;
    for (at, c) in name.char_indices() {
        match c {
            '(' => {
                // These are not parameter lists: `operator()`, `(anonymous namespace)`, `{lambda()#1}`.
                let is_list = depth == 0
                    && !name[..at].ends_with("operator")
                    && !name[at..].starts_with("(anonymous");
                if is_list {
                    open = Some(at);
                }
                depth += 1;
            }
            '<' | '{' | '[' if !is_operator(name, at) => depth += 1,
            '>' | '}' | ']' | ')' if !is_operator(name, at) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    open.filter(|at| *at > 0)
}

/// Replaces template arguments deeper than `keep` levels by `<…>`.
fn without_arguments(name: &str, keep: usize) -> String {
    nested_without_arguments(name, keep, MAX_LEADING)
}

fn nested_without_arguments(name: &str, keep: usize, leading: u32) -> String {
    // The `<Type as Trait>` at the start of a Rust method is not a list of arguments.
    if leading > 0
        && let Some((inner, rest)) = leading_brackets(name)
    {
        let inner = nested_without_arguments(inner, keep, leading - 1);
        let rest = nested_without_arguments(rest, keep, 0);
        return format!("<{inner}>{rest}");
    }
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    for (at, c) in name.char_indices() {
        match c {
            '<' if !is_operator(name, at) => {
                if depth == keep {
                    out.push_str("<…>");
                } else if depth < keep {
                    out.push(c);
                }
                depth += 1;
            }
            '>' if depth > 0 && !is_operator(name, at) => {
                depth -= 1;
                if depth < keep {
                    out.push(c);
                }
            }
            c if depth <= keep => out.push(c),
            _ => {}
        }
    }
    out
}

/// The text in the angle brackets at the start of a name, and the text behind them.
fn leading_brackets(name: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    for (at, c) in name.char_indices() {
        match c {
            '<' if !is_operator(name, at) => depth += 1,
            '>' if !is_operator(name, at) => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (at > 0).then(|| (&name[1..at], &name[at + 1..]));
        }
    }
    None
}

/// Whether the bracket at `at` belongs to an operator's name or to an arrow.
fn is_operator(name: &str, at: usize) -> bool {
    let mut before = &name[..at];
    if before.ends_with('-') {
        return true;
    }
    // The longest operators have three characters: `operator<=>`, `operator<<=`.
    for _ in 0..2 {
        before = before.strip_suffix(['<', '>', '-', '=']).unwrap_or(before);
    }
    before.ends_with("operator")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "shop::Shelf<std::vector<std::basic_string<char>, std::allocator<int>>>::put(std::map<int, int> const&, unsigned long)";

    /// Check that each step of shortening is used as the width decreases.
    #[test]
    fn names_are_shortened_in_steps() {
        let no_parameters =
            "shop::Shelf<std::vector<std::basic_string<char>, std::allocator<int>>>::put(…)";
        for (width, expected) in [
            (200, LONG),
            (90, no_parameters),
            (
                73,
                "shop::Shelf<std::vector<std::basic_string<…>, std::allocator<…>>>::put(…)",
            ),
            (50, "shop::Shelf<std::vector<…>>::put(…)"),
            (25, "shop::Shelf<…>::put(…)"),
            (10, "…>::put(…)"),
            (1, "…"),
        ] {
            assert_eq!(function(LONG, width), expected);
        }
    }

    /// Check that brackets in operator names and names that are not C++ are shortened correctly.
    #[test]
    fn brackets_of_operators_are_kept() {
        for (name, width, expected) in [
            (
                "a::B::operator<(a::B const&, a::B const&) const",
                20,
                "a::B::operator<(…)",
            ),
            (
                "a::B<int>::operator->(some::long_type)",
                23,
                "a::B<…>::operator->(…)",
            ),
            (
                "x::(anonymous namespace)::f(unsigned long)",
                32,
                "x::(anonymous namespace)::f(…)",
            ),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                40,
                "main::{lambda(int)#1}::operator()(…)",
            ),
            ("<a::b::c as d::E<f::G>>::h", 24, "<a::b::c as d::E<…>>::h"),
        ] {
            assert_eq!(function(name, width), expected);
        }
        assert!(function(&"<".repeat(1 << 14), 9).chars().count() <= 9);
        for (name, expected) in [
            (
                LONG,
                &LONG[..LONG.len() - "(std::map<int, int> const&, unsigned long)".len()],
            ),
            ("operator()() const", "operator()"),
            ("grab", "grab"),
            ("f()", "f"),
        ] {
            assert_eq!(bare(name), expected);
        }
        for name in ["", "((((", ">>>>", "<<<<", "f)(", "日本語の長い名前"] {
            for width in 1..12 {
                assert!(function(name, width).chars().count() <= width, "{name}");
            }
        }
    }
}
