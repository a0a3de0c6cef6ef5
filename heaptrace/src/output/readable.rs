//! Names of functions as people write them, without what compilers add.
//!
//! Stage: output. Leaves out template arguments that are the defaults of a library, the namespaces and tags of its versions, and how Rust
//! numbers its `impl` blocks; shortens the inner arguments of long names. Two functions can have the same readable name, so nothing is
//! grouped by it.

use std::borrow::Cow;

use super::function_name::{is_operator, split_outside};
use super::shorten::{MAX_LEADING, without_arguments};

/// The longest name, in characters, whose inner arguments are all kept.
const LONG: usize = 160;

/// A name with deeper brackets stays as it is: each level can be written anew, and a crafted name can nest without end.
const DEEPEST: usize = 64;

/// The longest tag of a version, in bytes.
const LONGEST_TAG: usize = 64;

/// Namespaces of versions, each with the namespace around it.
const VERSIONS: [(&str, &str); 4] = [
    ("std::", "__cxx11::"),
    ("std::", "__1::"),
    ("std::", "__ndk1::"),
    ("std::", "_V2::"),
];

/// Arguments that are the defaults of every type that has them.
const DEFAULTS: [&str; 3] = [
    "alloc::alloc::Global",
    "std::collections::hash::map::RandomState",
    "std::hash::random::RandomState",
];

/// A type that is a default whatever its own argument is.
const ALLOCATOR: &str = "std::allocator<";

/// Types of which an argument is a default if their own argument is the first one of the list.
const OF_FIRST: [&str; 3] = [
    "std::char_traits",
    "std::default_delete",
    "std::regex_traits",
];

/// The same, in types of a library alone: a function of the user may have them as a choice.
const OF_FIRST_IN_LIBRARIES: [&str; 4] = ["std::less", "std::hash", "std::equal_to", "boost::hash"];

/// The libraries.
const LIBRARIES: [&str; 4] = ["std::", "__gnu_cxx::", "boost::", "absl::"];

/// Types whose elements are in another container, which is a default.
const ADAPTERS: [(&str, &str); 3] = [
    ("std::stack", "std::deque"),
    ("std::queue", "std::deque"),
    ("std::priority_queue", "std::vector"),
];

/// Arguments that the standard library gives its own templates: what is the key, how a table is divided.
const INNER: [&str; 3] = ["std::__detail::_", "std::_Select1st<", "std::_Identity<"];

/// What the standard library calls a template with the argument, in front of the name without `basic_`.
const CHARACTERS: [(&str, &str); 5] = [
    ("char", ""),
    ("wchar_t", "w"),
    ("char8_t", "u8"),
    ("char16_t", "u16"),
    ("char32_t", "u32"),
];

/// A name of machine code for people, who may want it in full.
pub(super) fn for_people(name: &str, in_full: bool) -> Cow<'_, str> {
    match in_full {
        true => name.into(),
        false => readable(name),
    }
}

/// A name of machine code as people write it.
pub(super) fn readable(name: &str) -> Cow<'_, str> {
    // Names of C have nothing to leave out.
    if !name.contains("::") && !name.contains(['<', '[', '{']) {
        return name.into();
    }
    let mut cleaner = Cleaner::default();
    let clean = match cleaner.pass(name) {
        Some(()) => cleaner.out,
        None => name.to_owned(),
    };
    let is_long = |name: &str| name.chars().count() > LONG;
    if !is_long(&clean) {
        return clean.into();
    }
    let shorter = |keep| without_arguments(&clean, keep, MAX_LEADING);
    let mut forms = [4, 3, 2, 1].into_iter().map(shorter);
    let fitting = forms.find(|it| !is_long(it));
    fitting.unwrap_or_else(|| shorter(1)).into()
}

/// Brackets that are open, and where the arguments in them begin.
struct Open {
    bracket: char,
    /// Where the bracket is in the text so far.
    at: usize,
    /// In the text so far. Empty for brackets that are no list of template arguments.
    arguments: Vec<usize>,
}

/// Copies a name without what compilers add.
#[derive(Default)]
struct Cleaner {
    out: String,
    open: Vec<Open>,
}

impl Cleaner {
    /// Copies a name; `None` if it has too many brackets in each other.
    fn pass(&mut self, name: &str) -> Option<()> {
        let mut at = 0;
        while let Some(c) = name[at..].chars().next() {
            if let Some(length) = noise(&self.out, &name[at..]) {
                at += length;
                continue;
            }
            let is_bracket = !matches!(c, '<' | '>') || !is_operator(name, at);
            at += c.len_utf8();
            match c {
                '<' | '(' | '[' | '{' if is_bracket => {
                    if self.open.len() == DEEPEST {
                        return None;
                    }
                    let at = self.out.len();
                    self.out.push(c);
                    let first = (c == '<').then_some(self.out.len());
                    self.open.push(Open {
                        bracket: c,
                        at,
                        arguments: first.into_iter().collect(),
                    });
                }
                ',' => {
                    self.out.push(c);
                    if let Some(open) = self.open.last_mut()
                        && !open.arguments.is_empty()
                    {
                        open.arguments.push(self.out.len());
                    }
                }
                '>' if is_bracket => {
                    // A bracket that closes nothing is a comparison.
                    let open = self.open.pop_if(|it| it.bracket == '<');
                    self.out.push(c);
                    if let Some(first) = open.as_ref().and_then(|it| it.arguments.first()) {
                        let arguments = open.as_ref().map_or(&[][..], |it| &it.arguments);
                        self.close(*first, arguments, name[at..].starts_with("::"));
                    }
                }
                ')' | ']' | '}' => {
                    let opening = match c {
                        ')' => '(',
                        ']' => '[',
                        _ => '{',
                    };
                    self.out.push(c);
                    // Comparisons inside leave brackets open.
                    let open = self.open.iter().rposition(|it| it.bracket == opening);
                    let closed = open.and_then(|it| self.open.drain(it..).next());
                    // The type of a number: `Lock<(Policy)2>`.
                    if let Some(closed) = closed
                        && c == ')'
                        && name[at..].starts_with(|c: char| c.is_ascii_digit() || c == '-')
                    {
                        self.out.truncate(closed.at);
                    }
                }
                _ => self.out.push(c),
            }
        }
        Some(())
    }

    /// Writes a list of template arguments anew, which has just been closed. `is_path`: whether more of a path follows.
    fn close(&mut self, first: usize, begins: &[usize], is_path: bool) {
        let list = first - 1;
        let (before, text) = self.out.split_at(list);
        let path_at = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| c.is_alphanumeric() || matches!(c, '_' | ':'))
            .last()
            .map_or(list, |(at, _)| at);
        let path = &before[path_at..];
        let ends = begins.iter().skip(1).map(|it| it - 1);
        let ends = ends.chain([self.out.len() - 1]);
        let arguments: Vec<&str> = begins
            .iter()
            .zip(ends)
            .map(|(begin, end)| text[begin - list..end - list].trim())
            .collect();
        let (start, replaced) = match arguments.as_slice() {
            [content] if is_path && path.ends_with("::") => match of_impl(content) {
                Some(named) => (path_at, named),
                None => (list, format!("<{content}>")),
            },
            // Rust's newer names have a type in brackets: `<app::Shelf<u8>>::put`.
            [content] if is_path && path.is_empty() && is_one_type(content) => {
                (list, (*content).to_owned())
            }
            _ => {
                let kept = kept(path, &arguments);
                match alias(path, &kept) {
                    Some(alias) => (path_at, alias),
                    None => (list, format!("<{}>", kept.join(", "))),
                }
            }
        };
        self.out.truncate(start);
        self.out.push_str(&replaced);
    }
}

/// The length of a part at the start of a text that means nothing to a reader. `before` is the text in front of it.
fn noise(before: &str, rest: &str) -> Option<usize> {
    if let Some(tag) = rest.strip_prefix("[abi:") {
        let end = tag.bytes().take(LONGEST_TAG).position(|it| it == b']')?;
        return Some("[abi:".len() + end + 1);
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    if let Some(number) = rest.strip_prefix("{impl#") {
        let end = digits(number);
        let is_whole = number[end..].starts_with("}::");
        return is_whole.then_some("{impl#".len() + end + "}::".len());
    }
    if rest.starts_with("{{impl}}::") {
        return Some("{{impl}}::".len());
    }
    if let Some(hash) = rest.strip_prefix("::h") {
        let is_hash = hash.len() == 16 && hash.bytes().all(|it| it.is_ascii_hexdigit());
        return is_hash.then_some(rest.len());
    }
    let in_namespace = |name: &str| {
        let outer = before.strip_suffix(name)?;
        Some(!outer.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let mut versions = VERSIONS.iter();
    let version = versions
        .find(|(outer, inner)| rest.starts_with(inner) && in_namespace(outer) == Some(true));
    if let Some((_, inner)) = version {
        return Some(inner.len());
    }
    let numbered = |outer: &str, start: &str| {
        let number = rest.strip_prefix(start)?;
        let end = digits(number);
        let is_whole = end > 0 && number[end..].starts_with("::");
        (is_whole && in_namespace(outer)?).then_some(start.len() + end + 2)
    };
    numbered("absl::", "lts_").or_else(|| numbered("fmt::", "v"))
}

/// What Rust writes as `module::<impl Trait for Type>::method` is `<Type as Trait>::method`.
fn of_impl(content: &str) -> Option<String> {
    let content = content.strip_prefix("impl ")?;
    Some(match split_outside(content, " for ") {
        (by, Some(of)) => format!("<{of} as {by}>"),
        (of, None) if of.starts_with(char::is_alphabetic) => of.to_owned(),
        (of, None) => format!("<{of}>"),
    })
}

/// Whether a text is the path of a type.
fn is_one_type(text: &str) -> bool {
    text.starts_with(char::is_alphabetic) && split_outside(text, " ").1.is_none()
}

/// The arguments of a type or function that are no defaults.
fn kept<'a>(of: &str, arguments: &[&'a str]) -> Vec<&'a str> {
    let Some(first) = arguments.first() else {
        return Vec::new();
    };
    let is_of_library = LIBRARIES.iter().any(|it| of.starts_with(it));
    let is_type_of_first =
        |argument: &str, types: &[&str]| types.iter().any(|it| is_of(argument, it, first));
    let is_default = |argument: &str| {
        DEFAULTS.contains(&argument)
            || argument.starts_with(ALLOCATOR)
            || is_type_of_first(argument, &OF_FIRST)
            || is_of_library && is_type_of_first(argument, &OF_FIRST_IN_LIBRARIES)
            || of.starts_with("std::_") && INNER.iter().any(|it| argument.starts_with(it))
            || ADAPTERS
                .iter()
                .any(|(adapter, container)| of == *adapter && is_of(argument, container, first))
    };
    let others = arguments.iter().skip(1).filter(|it| !is_default(it));
    std::iter::once(first).chain(others).copied().collect()
}

/// Whether a type is this template of this argument alone.
fn is_of(found: &str, template: &str, argument: &str) -> bool {
    let list = found.strip_prefix(template);
    let list = list.and_then(|it| it.strip_prefix('<')?.strip_suffix('>'));
    list == Some(argument)
}

/// The name that the standard library has for a template with these arguments.
fn alias(of: &str, arguments: &[&str]) -> Option<String> {
    let [argument] = arguments else { return None };
    let name = of.strip_prefix("std::basic_")?;
    let mut characters = CHARACTERS.iter();
    let (_, start) = characters.find(|(character, _)| character == argument)?;
    Some(format!("std::{start}{name}"))
}

#[cfg(test)]
mod tests;
