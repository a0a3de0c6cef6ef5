//! Names of types as people write them.
//!
//! Stage: types. Default arguments and the inner namespaces of standard libraries are dropped; a program's own namespaces stay. Must not know
//! frames.

use super::text::{Segment, is_balanced, list, segments};

/// Nesting of arguments that is followed. Deeper ones stay as they are.
const MAX_DEPTH: usize = 24;

/// A C++ type.
pub(super) fn cpp(text: &str) -> String {
    cpp_within(text, MAX_DEPTH)
}

fn cpp_within(text: &str, depth: usize) -> String {
    let mut base = text.trim();
    if depth == 0 || !is_balanced(base) {
        return base.to_owned();
    }
    // Pointers, references and qualifiers behind the name, outermost last.
    let mut behind = Vec::new();
    let mut is_const = false;
    loop {
        if let Some(shorter) = base.strip_suffix(['*', '&']) {
            behind.push(base.get(shorter.len()..).unwrap_or_default());
            if is_const {
                behind.insert(behind.len() - 1, " const");
                is_const = false;
            }
            base = shorter.trim_end();
        } else if let Some(shorter) = base.strip_suffix(" const") {
            is_const = true;
            base = shorter.trim_end();
        } else {
            break;
        }
    }
    if let Some(shorter) = base.strip_prefix("const ") {
        is_const = true;
        base = shorter.trim_start();
    }
    let mut out = String::new();
    if is_const {
        out.push_str("const ");
    }
    // The type of a function, with its result before it.
    let named = match function_type(base) {
        Some((result, parameters)) => {
            format!("{} {parameters}", cpp_within(result, depth - 1))
        }
        None if base.ends_with(')') => base.to_owned(),
        None => cpp_path(language_type(base), depth),
    };
    out.push_str(&named);
    behind.iter().rev().for_each(|it| out.push_str(it));
    out
}

/// The type of a function: its result, and its parameters in brackets.
fn function_type(text: &str) -> Option<(&str, &str)> {
    let (result, parameters) = text.split_at(text.find('(')?);
    let is_plain =
        parameters.ends_with(')') && !parameters.contains("(*") && !parameters.contains("::");
    let result = result.trim_end();
    (is_plain && !result.is_empty() && !result.contains(['<', '{', ':']))
        .then_some((result, parameters))
}

/// Compilers write these types in two ways.
fn language_type(name: &str) -> &str {
    match name {
        "long int" => "long",
        "long unsigned int" => "unsigned long",
        "long long int" => "long long",
        "long long unsigned int" => "unsigned long long",
        "short int" => "short",
        "short unsigned int" => "unsigned short",
        name => name,
    }
}

fn cpp_path(base: &str, depth: usize) -> String {
    let base = base
        .strip_prefix("struct ")
        .or_else(|| base.strip_prefix("class "))
        .or_else(|| base.strip_prefix("union "))
        .or_else(|| base.strip_prefix("enum "))
        .unwrap_or(base);
    let parts = segments(base);
    let is_std = parts.first().is_some_and(|it| it.name == "std");
    let mut out = String::new();
    for (index, part) in parts.iter().enumerate() {
        if is_std && index == 1 && is_inline_namespace(part.name) {
            continue;
        }
        if index > 0 {
            out.push_str("::");
        }
        if is_std && let Some(short) = standard_string(part) {
            out.push_str(short);
            continue;
        }
        out.push_str(part.name);
        let kept = match is_std {
            true => explicit(part),
            false => &part.arguments,
        };
        if !part.arguments.is_empty() {
            let shown: Vec<String> = kept.iter().map(|it| cpp_within(it, depth - 1)).collect();
            out.push('<');
            out.push_str(&shown.join(", "));
            out.push('>');
        }
    }
    out
}

/// Whether a namespace in `std` holds the names of `std` for one version of the library.
pub(super) fn is_inline_namespace(name: &str) -> bool {
    matches!(
        name,
        "__1" | "__2" | "__cxx11" | "__ndk1" | "__cxx1998" | "__debug"
    )
}

fn standard_string(part: &Segment<'_>) -> Option<&'static str> {
    if part.name != "basic_string" {
        return None;
    }
    let [element, rest @ ..] = part.arguments.as_slice() else {
        return None;
    };
    let is_standard = |it: &&str| it.starts_with("std::");
    if !rest.iter().all(is_standard) || rest.iter().any(|it| it.contains("pmr")) {
        return None;
    }
    match *element {
        "char" => Some("string"),
        "wchar_t" => Some("wstring"),
        "char16_t" => Some("u16string"),
        "char32_t" => Some("u32string"),
        "char8_t" => Some("u8string"),
        _ => None,
    }
}

/// Arguments that are the same if they are left out, by the beginning of their names.
const DEFAULTS: [&str; 6] = [
    "std::allocator<",
    "std::less<",
    "std::hash<",
    "std::equal_to<",
    "std::char_traits<",
    "std::default_delete<",
];

/// The arguments without the default ones at the end.
fn explicit<'p, 't>(part: &'p Segment<'t>) -> &'p [&'t str] {
    let mut kept = part.arguments.as_slice();
    while let [before @ .., last] = kept
        && !before.is_empty()
    {
        let plain = last.replace("std::__1::", "std::");
        let is_default = DEFAULTS.iter().any(|it| plain.starts_with(it)) && plain.ends_with('>');
        let is_default_container = match part.name {
            "queue" | "stack" => plain.starts_with("std::deque<"),
            "priority_queue" => plain.starts_with("std::vector<"),
            _ => false,
        };
        if !is_default && !is_default_container {
            break;
        }
        kept = before;
    }
    kept
}

/// Crates whose types are known by their last name alone.
const RUST_STANDARD: [&str; 4] = ["alloc", "core", "std", "hashbrown"];

/// A Rust type.
pub(super) fn rust(text: &str) -> String {
    rust_within(text, MAX_DEPTH)
}

fn rust_within(text: &str, depth: usize) -> String {
    let text = text.trim();
    if depth == 0 || !is_balanced(text) {
        return text.to_owned();
    }
    for prefix in ["&mut ", "&", "*const ", "*mut ", "dyn ", "impl "] {
        if let Some(rest) = text.strip_prefix(prefix) {
            return format!("{prefix}{}", rust_within(rest, depth - 1));
        }
    }
    if let Some(inner) = text.strip_prefix('(').and_then(|it| it.strip_suffix(')')) {
        let parts: Vec<String> = list(inner)
            .iter()
            .map(|it| rust_within(it, depth - 1))
            .collect();
        let comma = if parts.len() == 1 { "," } else { "" };
        return format!("({}{comma})", parts.join(", "));
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        return match inner.rsplit_once("; ") {
            Some((element, length)) => {
                format!("[{}; {length}]", rust_within(element, depth - 1))
            }
            None => format!("[{}]", rust_within(inner, depth - 1)),
        };
    }
    if text.contains(" + ") || text.contains(" -> ") {
        return text.to_owned();
    }
    rust_path(text, depth)
}

fn rust_path(text: &str, depth: usize) -> String {
    let mut parts = segments(text);
    let is_standard = parts
        .first()
        .is_some_and(|it| RUST_STANDARD.contains(&it.name));
    let is_closure = parts.iter().any(|it| it.name.starts_with('{'));
    if is_standard && !is_closure {
        parts.drain(..parts.len().saturating_sub(1));
    }
    let shown = parts.iter().map(|part| {
        let mut out = part.name.to_owned();
        let arguments: Vec<String> = part
            .arguments
            .iter()
            .filter(|it| !is_rust_default(it))
            .map(|it| rust_within(it, depth - 1))
            .collect();
        if !arguments.is_empty() {
            out.push('<');
            out.push_str(&arguments.join(", "));
            out.push('>');
        }
        out
    });
    shown.collect::<Vec<_>>().join("::")
}

/// Whether an argument is the same if it is left out.
pub(super) fn is_rust_default(argument: &str) -> bool {
    matches!(
        argument,
        "alloc::alloc::Global"
            | "std::hash::random::RandomState"
            | "std::collections::hash::map::RandomState"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that C++ types lose default arguments and inner namespaces, and nothing else.
    #[test]
    fn cpp_types_are_shown_for_people() {
        for (text, shown) in [
            ("Order", "Order"),
            ("Order*", "Order*"),
            ("Order const*", "const Order*"),
            ("Order* const", "Order* const"),
            (
                "std::vector<Order, std::allocator<Order> >",
                "std::vector<Order>",
            ),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
                "std::string",
            ),
            (
                "std::__1::map<int, a::B, std::__1::less<int>, std::__1::allocator<std::__1::pair<int const, a::B> > >",
                "std::map<int, a::B>",
            ),
            ("std::pair<int const, Order>", "std::pair<const int, Order>"),
            (
                "std::vector<Order, Mallocator<Order> >",
                "std::vector<Order, Mallocator<Order>>",
            ),
            (
                "std::queue<int, std::deque<int, std::allocator<int> > >",
                "std::queue<int>",
            ),
            ("std::function<long (int)>", "std::function<long (int)>"),
            (
                "app::vector<int, std::allocator<int> >",
                "app::vector<int, std::allocator<int>>",
            ),
            ("long unsigned int", "unsigned long"),
            ("std::vector<long int>", "std::vector<long>"),
            ("std::function<long int()>", "std::function<long ()>"),
            ("char const* const*", "const char* const*"),
            ("f(int)::{lambda()#1}", "f(int)::{lambda()#1}"),
            ("struct conn", "conn"),
        ] {
            assert_eq!(cpp(text), shown);
        }
    }

    /// Check that Rust types of the standard library are shown by their last names.
    #[test]
    fn rust_types_are_shown_for_people() {
        for (text, shown) in [
            ("rs::Order", "rs::Order"),
            ("alloc::string::String", "String"),
            (
                "alloc::vec::Vec<rs::Order, alloc::alloc::Global>",
                "Vec<rs::Order>",
            ),
            ("(u64, alloc::string::String)", "(u64, String)"),
            ("(u64,)", "(u64,)"),
            ("()", "()"),
            ("&mut [core::option::Option<u8>]", "&mut [Option<u8>]"),
            ("[u8; 16]", "[u8; 16]"),
            (
                "std::sync::poison::mutex::Mutex<rs::Session>",
                "Mutex<rs::Session>",
            ),
            (
                "rs::case::{closure#0}::{closure_env#0}",
                "rs::case::{closure#0}::{closure_env#0}",
            ),
        ] {
            assert_eq!(rust(text), shown);
        }
    }
}
