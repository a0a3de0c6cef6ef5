//! Long function names, made to fit.
//!
//! Stage: output. What tells functions apart is their path and name; parameters and template
//! arguments go first.

/// Levels of `<<<T as A>::B as C>::D as E>::f` that are looked into; a name may be made of them.
const MAX_LEADING: u32 = 4;

/// Shortens a function name to at most `width` characters, if it is longer.
pub(crate) fn function(name: &str, width: usize) -> String {
    let fits = |name: &str| name.chars().count() <= width;
    if fits(name) {
        return name.to_owned();
    }
    let name = without_parameters(name);
    if fits(&name) {
        return name;
    }
    // From the inside: `map<string, vector<…>>` says more than `map<…>`.
    for depth in [2, 1, 0] {
        let short = without_arguments(&name, depth);
        if fits(&short) {
            return short;
        }
    }
    cut_front(&without_arguments(&name, 0), width)
}

/// Keeps the end of a text, which for a function or a path is the part that tells most.
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

/// Cuts the last parameter list to `(…)`, with what follows it.
fn without_parameters(name: &str) -> String {
    match parameters(name) {
        Some(at) if !name[at..].starts_with("()") => format!("{}(…)", &name[..at]),
        _ => name.to_owned(),
    }
}

/// A function's name without its last parameter list and what follows it.
pub(super) fn bare(name: &str) -> &str {
    parameters(name).map_or(name, |at| &name[..at])
}

/// Where the last parameter list begins.
fn parameters(name: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut open = None;
    for (at, c) in name.char_indices() {
        match c {
            '(' => {
                // Neither of these is a list: `operator()`, `(anonymous namespace)`, `{lambda()#1}`.
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

/// Cuts template arguments deeper than `keep` levels to `<…>`.
fn without_arguments(name: &str, keep: usize) -> String {
    nested_without_arguments(name, keep, MAX_LEADING)
}

fn nested_without_arguments(name: &str, keep: usize, leading: u32) -> String {
    // The `<Type as Trait>` that a Rust method begins with are no arguments.
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

/// What is in the angle brackets that a name begins with, and what follows them.
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

/// Whether the bracket at `at` is part of an operator's name or of an arrow.
fn is_operator(name: &str, at: usize) -> bool {
    let mut before = &name[..at];
    if before.ends_with('-') {
        return true;
    }
    // The longest ones have three signs: `operator<=>`, `operator<<=`.
    for _ in 0..2 {
        before = before.strip_suffix(['<', '>', '-', '=']).unwrap_or(before);
    }
    before.ends_with("operator")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "shop::Shelf<std::vector<std::basic_string<char>, std::allocator<int>>>::put(std::map<int, int> const&, unsigned long)";

    /// Check each step, as the room gets less.
    #[test]
    fn steps() {
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

    /// Check that brackets which are no brackets don't confuse it, nor names that are no C++.
    #[test]
    fn operators() {
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
