//! Shortens long function names to a width.
//!
//! Stage: output. A name is cut inside its parameters and template arguments first, then at its outer namespaces.
//! The function's own name is the last to go.

use super::function_name::{
    components, is_operator, leading_brackets, parameters, path, type_and_trait,
};

/// The largest nesting of `<<<T as A>::B as C>::D as E>::f` that is parsed; a crafted name can nest without
/// end.
pub(super) const MAX_LEADING: u32 = 4;

/// Shortens a function name to at most `width` characters.
pub(crate) fn function(name: &str, width: usize) -> String {
    let fits = |name: &str| name.chars().count() <= width;
    if fits(name) {
        return name.to_owned();
    }
    if is_of_python(name) {
        return cut_front(name, width);
    }
    let path = path(name);
    let ending = match parameters(name) {
        None => "",
        Some(at) if name[at..].starts_with("()") => "()",
        Some(_) => "(…)",
    };
    // The inner arguments are cut first: `map<string, vector<…>>` says more than `map<…>`.
    let whole = std::iter::once(path.to_owned());
    let shorter = [2, 1, 0].map(|depth| without_arguments(path, depth, MAX_LEADING));
    for short in whole.chain(shorter) {
        let short = short + ending;
        if fits(&short) {
            return short;
        }
    }
    let path = without_arguments(path, 0, MAX_LEADING);
    if let Some(short) = methods(&path, ending).into_iter().find(|it| fits(it)) {
        return short;
    }
    innermost(&path, ending, width)
}

/// A function's name in three lengths: without the type that it returns, also without parameters and template
/// arguments, and its own name alone.
pub(super) fn lengths(name: &str) -> [String; 3] {
    let full = name.find(path(name)).map_or(name, |start| &name[start..]);
    let ending = match parameters(name) {
        None => "",
        Some(at) if name[at..].starts_with("()") => "()",
        Some(_) => "(…)",
    };
    // Rust writes `run::<Item>`.
    let brief = without_arguments(path(name), 0, MAX_LEADING).replace("::<…>", "<…>");
    let parts = components(&brief);
    let own = parts[own_name(&parts)..].join("::");
    let own = if own.is_empty() { brief.clone() } else { own };
    [full.to_owned(), brief + ending, own]
}

/// The last part of a Python function's name: `put` of `Shelf.put`, `<lambda>` of `f.<locals>.<lambda>`.
pub(super) fn python_own_name(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((_, own)) if !own.is_empty() => own,
        _ => name,
    }
}

/// Whether a name has words that Python puts in angle brackets, which are no template arguments: `f.<locals>.<lambda>`.
fn is_of_python(name: &str) -> bool {
    const WORDS: [&str; 7] = [
        "<module>",
        "<locals>",
        "<lambda>",
        "<listcomp>",
        "<setcomp>",
        "<dictcomp>",
        "<genexpr>",
    ];
    name.split('.').any(|part| WORDS.contains(&part))
}

/// The path of a function without its types, shortened to at most `width` characters.
pub(super) fn function_path(name: &str, width: usize) -> String {
    function(path(name), width)
}

/// Keeps the end of a text, which is the most useful part of a path.
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

/// Keeps both ends of a text.
pub(super) fn cut_middle(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let last = kept / 2;
    let first = text.chars().take(kept - last);
    first
        .chain(std::iter::once('…').filter(|_| width > 0))
        .chain(text.chars().skip(count - last))
        .collect()
}

/// Shorter forms of `<a::Type as b::Trait>::method`.
fn methods(path: &str, ending: &str) -> Vec<String> {
    let Some((inner, method)) = leading_brackets(path) else {
        return Vec::new();
    };
    let last = |path| components(path).pop().unwrap_or_default();
    let (of, by) = type_and_trait(inner);
    let of = last(of);
    let with_trait = by.map(|by| format!("<{of} as {}>{method}{ending}", last(by)));
    with_trait
        .into_iter()
        .chain([format!("{of}{method}{ending}")])
        .collect()
}

/// As many of the innermost components as fit; of the function's own name its ends, if it is too long.
fn innermost(path: &str, ending: &str, width: usize) -> String {
    const BEFORE: &str = "…::";
    let parts = components(path);
    let mut first = own_name(&parts);
    let own = parts[first..].join("::");
    let length = |text: &str| text.chars().count();
    let mut used = length(BEFORE) + length(&own) + length(ending);
    if used > width {
        let bare = without_lists(&own);
        let outer = without_lists(parts[first]).replace(" const", "");
        let within = if first + 1 < parts.len() {
            "::{…}"
        } else {
            ""
        };
        let forms = [
            format!("{own}{ending}"),
            own,
            bare,
            format!("{outer}{within}"),
        ];
        let fitting = forms.into_iter().find(|it| length(it) <= width);
        return fitting.unwrap_or_else(|| cut_middle(&outer, width));
    }
    while first > 0 {
        used += length(parts[first - 1]) + 2;
        if used > width {
            break;
        }
        first -= 1;
    }
    format!("{BEFORE}{}{ending}", parts[first..].join("::"))
}

/// The first component of the function's own name. A closure has the name of the function around it.
fn own_name(parts: &[&str]) -> usize {
    let mut first = parts.len().saturating_sub(1);
    while first > 0 && (parts[first].starts_with('{') || parts[first] == "operator()") {
        first -= 1;
    }
    first
}

/// Removes the lists whose content is left out already.
fn without_lists(name: &str) -> String {
    name.replace("<…>", "").replace("(…)", "")
}

/// Replaces template arguments and parameters deeper than `keep` levels by `…`.
pub(super) fn without_arguments(name: &str, keep: usize, leading: u32) -> String {
    // The `<Type as Trait>` at the start of a Rust method is not a list of arguments.
    if leading > 0
        && let Some((inner, rest)) = leading_brackets(name)
    {
        let inner = without_arguments(inner, keep, leading - 1);
        let rest = without_arguments(rest, keep, 0);
        return format!("<{inner}>{rest}");
    }
    let mut out = String::with_capacity(name.len());
    // The lists around the next character, each with whether its content is kept.
    let mut lists: Vec<bool> = Vec::new();
    for (at, c) in name.char_indices() {
        let depth = lists.len();
        let is_kept = depth <= keep;
        match c {
            '<' | '(' if !is_operator(name, at) => {
                let rest = &name[at..];
                let is_text = rest.starts_with("(anonymous") || rest.starts_with("()");
                lists.push(is_text);
                if is_kept {
                    out.push(c);
                }
                if is_kept && depth == keep && !is_text {
                    out.push('…');
                }
            }
            '>' | ')' if depth > 0 && !is_operator(name, at) => {
                lists.pop();
                if depth <= keep + 1 {
                    out.push(c);
                }
            }
            c if is_kept || depth == keep + 1 && lists.last() == Some(&true) => out.push(c),
            _ => {}
        }
    }
    out
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
            (20, "…::Shelf<…>::put(…)"),
            (10, "…::put(…)"),
            (8, "put(…)"),
            (5, "put"),
            (2, "p…"),
            (1, "…"),
            (0, ""),
        ] {
            assert_eq!(function(LONG, width), expected, "{width}");
        }
    }

    /// Check that names of C++ and Rust keep the function's own name at widths of tables.
    #[test]
    fn own_names_are_kept() {
        for (name, forms) in [
            (
                "void std::vector<shop::Item, std::allocator<shop::Item> >::_M_realloc_insert<shop::Item const&>(__gnu_cxx::__normal_iterator<shop::Item*, std::vector<shop::Item> >, shop::Item const&)",
                &[
                    (80, "std::vector<…>::_M_realloc_insert<…>(…)"),
                    (38, "…::vector<…>::_M_realloc_insert<…>(…)"),
                    (30, "…::_M_realloc_insert<…>(…)"),
                    (20, "_M_realloc_insert<…>"),
                    (19, "_M_realloc_insert"),
                ][..],
            ),
            (
                "shop::(anonymous namespace)::Parser::read(std::function<void (int)> const&) const::{lambda(std::pair<int, int>)#2}::operator()(std::pair<int, int>) const",
                &[
                    (
                        80,
                        "shop::(anonymous namespace)::Parser::read(…) const::{lambda(…)#2}::operator()(…)",
                    ),
                    (60, "…::Parser::read(…) const::{lambda(…)#2}::operator()(…)"),
                    (50, "…::read(…) const::{lambda(…)#2}::operator()(…)"),
                    (20, "read::{…}"),
                    (8, "read"),
                ],
            ),
            (
                "<shop::cart::Cart<alloc::vec::Vec<u8>> as core::iter::traits::iterator::Iterator>::next",
                &[
                    (
                        80,
                        "<shop::cart::Cart<…> as core::iter::traits::iterator::Iterator>::next",
                    ),
                    (60, "<Cart<…> as Iterator>::next"),
                    (20, "Cart<…>::next"),
                    (10, "…::next"),
                ],
            ),
            (
                "tokio::runtime::task::harness::Harness<tower::Service<http::Request<()>>, S>::poll::{{closure}}",
                &[
                    (
                        80,
                        "tokio::runtime::task::harness::Harness<tower::Service<…>, S>::poll::{{closure}}",
                    ),
                    (
                        60,
                        "tokio::runtime::task::harness::Harness<…>::poll::{{closure}}",
                    ),
                    (50, "…::task::harness::Harness<…>::poll::{{closure}}"),
                    (30, "…::poll::{{closure}}"),
                    (20, "…::poll::{{closure}}"),
                ],
            ),
            (
                "rte_eth_dev_configure_all_queues_of_port",
                &[
                    (80, "rte_eth_dev_configure_all_queues_of_port"),
                    (40, "rte_eth_dev_configure_all_queues_of_port"),
                    (30, "rte_eth_dev_con…queues_of_port"),
                    (20, "rte_eth_de…s_of_port"),
                ],
            ),
        ] {
            for &(width, expected) in forms {
                let found = function(name, width);
                assert_eq!(found, expected, "{width}");
                assert!(found.chars().count() <= width);
            }
        }
    }

    /// Check that the end of a Python name is kept, whose brackets are no arguments.
    #[test]
    fn names_of_python_keep_their_end() {
        let name = "Server.handle.<locals>.retry.<locals>.<lambda>";
        for (width, expected) in [
            (50, name),
            (25, "….retry.<locals>.<lambda>"),
            (9, "…<lambda>"),
        ] {
            assert_eq!(function(name, width), expected);
        }
        assert_eq!(function("<module>", 8), "<module>");
        assert_eq!(function_path(name, 9), "…<lambda>");
        for (name, expected) in [
            ("Shelf.put", "put"),
            (name, "<lambda>"),
            ("<module>", "<module>"),
            ("put", "put"),
            ("", ""),
            ("a.", "a."),
        ] {
            assert_eq!(python_own_name(name), expected);
        }
        assert_eq!(
            function("shop::Shelf<module>::put(int)", 24),
            "shop::Shelf<…>::put(…)"
        );
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
            (
                "operator new(unsigned long, std::nothrow_t const&)",
                20,
                "operator new(…)",
            ),
        ] {
            assert_eq!(function(name, width), expected);
        }
        assert_eq!(function_path("void a::f<int>(int)", 20), "a::f<int>");
    }

    /// Check that no text is longer than its width, whatever it is, and that crafted names are shortened soon.
    #[test]
    fn any_text_fits() {
        let deep = "<".repeat(1 << 14);
        let wide = "a::".repeat(1 << 12);
        for name in [
            "",
            "((((",
            ">>>>",
            "<<<<",
            "f)(",
            "日本語の長い名前",
            "operator",
            "::::::::::::::",
            "a<b>::{{closure}}",
            &deep,
            &wide,
            LONG,
        ] {
            for width in [0, 1, 2, 3, 4, 5, 9, 20, 40, 80] {
                assert!(function(name, width).chars().count() <= width, "{name}");
            }
        }
    }
}
