//! The text of a C++ or Rust type or function name, taken apart.
//!
//! Stage: types. Works on what demanglers and compilers write, so nothing here fails: text that is no name is one segment without arguments.
//! Must not know what any name means.

/// One part of a path: `vector<int, std::allocator<int> >`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment<'t> {
    pub(super) name: &'t str,
    pub(super) arguments: Vec<&'t str>,
}

/// Most parts of a path, and arguments of one.
const MAX_PARTS: usize = 64;

/// The parts of a path.
pub(super) fn segments(text: &str) -> Vec<Segment<'_>> {
    let mut found = Vec::new();
    for part in split(text, Separator::Path) {
        if found.len() >= MAX_PARTS {
            break;
        }
        found.push(segment(part.trim()));
    }
    found
}

/// The first argument of the last part.
pub(super) fn first_argument(text: &str) -> Option<&str> {
    let all = segments(text);
    all.last()?.arguments.first().copied()
}

/// The parts of an argument list or of a tuple: what is between its top-level commas.
pub(super) fn list(text: &str) -> Vec<&str> {
    split(text, Separator::Comma)
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .take(MAX_PARTS)
        .collect()
}

fn segment(part: &str) -> Segment<'_> {
    let whole = Segment {
        name: without_tag(part),
        arguments: Vec::new(),
    };
    // What is behind the arguments belongs to no template: a parameter list, or the operator itself.
    if !part.ends_with('>') {
        return whole;
    }
    let from = operator_length(part);
    let Some(open) = open_of_last(part, from) else {
        return whole;
    };
    let (name, arguments) = part.split_at(open);
    let inner = arguments
        .get(1..arguments.len().saturating_sub(1))
        .unwrap_or_default();
    Segment {
        name: without_tag(name.trim_end()),
        arguments: list(inner),
    }
}

/// A name without the tag of its binary interface: `allocate[abi:ne190107]`.
fn without_tag(name: &str) -> &str {
    let tag = name.find("[abi:").filter(|_| name.ends_with(']'));
    tag.and_then(|at| name.get(..at)).unwrap_or(name)
}

/// The place of the bracket that the last `>` closes.
fn open_of_last(part: &str, from: usize) -> Option<usize> {
    let mut open = None;
    let mut brackets = Brackets::default();
    for (at, byte) in part.bytes().enumerate().skip(from) {
        if byte == b'<' && brackets.is_outside() {
            open = Some(at);
        }
        brackets.step(byte);
    }
    open.filter(|at| *at > 0 && brackets.is_outside())
}

/// The length of an operator's name at the beginning of a part: `operator<` has a bracket that opens nothing.
fn operator_length(part: &str) -> usize {
    let Some(symbol) = part.strip_prefix("operator") else {
        return 0;
    };
    let symbols = [
        "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()", "<", ">",
    ];
    let found = symbols.iter().find(|it| symbol.starts_with(**it));
    found.map_or(0, |it| "operator".len() + it.len())
}

/// What text is split at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// `::`
    Path,
    /// `,`
    Comma,
}

fn split(text: &str, separator: Separator) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut brackets = Brackets::default();
    let mut start = 0;
    let mut skip = match separator {
        Separator::Path => operator_length(text),
        Separator::Comma => 0,
    };
    let bytes = text.as_bytes();
    for (at, byte) in text.bytes().enumerate() {
        if at < skip {
            continue;
        }
        let ends = match separator {
            Separator::Path => byte == b':' && bytes.get(at + 1) == Some(&b':'),
            Separator::Comma => byte == b',',
        };
        if ends && brackets.is_outside() {
            parts.push(text.get(start..at).unwrap_or_default());
            start = at
                + match separator {
                    Separator::Path => 2,
                    Separator::Comma => 1,
                };
            skip = start;
            if separator == Separator::Path {
                skip += operator_length(text.get(start..).unwrap_or_default());
            }
            continue;
        }
        brackets.step(byte);
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

/// Open brackets. `->` closes none.
#[derive(Default)]
struct Brackets {
    depth: u32,
    before: u8,
}

impl Brackets {
    fn is_outside(&self) -> bool {
        self.depth == 0
    }

    fn step(&mut self, byte: u8) {
        match byte {
            b'<' | b'(' | b'[' | b'{' => self.depth += 1,
            b'>' if self.before == b'-' || self.before == b'=' => {}
            b'>' | b')' | b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.before = byte;
    }
}

/// Whether the brackets of a text match.
pub(super) fn is_balanced(text: &str) -> bool {
    let mut brackets = Brackets::default();
    text.bytes().for_each(|byte| brackets.step(byte));
    brackets.is_outside()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<(String, Vec<String>)> {
        let owned = |it: Segment<'_>| {
            let arguments = it.arguments.iter().map(|it| (*it).to_owned()).collect();
            (it.name.to_owned(), arguments)
        };
        segments(text).into_iter().map(owned).collect()
    }

    fn part(name: &str, arguments: &[&str]) -> (String, Vec<String>) {
        let arguments = arguments.iter().map(|it| (*it).to_owned()).collect();
        (name.to_owned(), arguments)
    }

    /// Check that names of functions in templates are split outside of brackets alone.
    #[test]
    fn names_are_split() {
        assert_eq!(
            parts("std::vector<A::B<int>, std::allocator<int> >::push_back"),
            [
                part("std", &[]),
                part("vector", &["A::B<int>", "std::allocator<int>"]),
                part("push_back", &[])
            ]
        );
        assert_eq!(
            parts("push<rs::Order, alloc::alloc::Global>"),
            [part("push", &["rs::Order", "alloc::alloc::Global"])]
        );
        assert_eq!(
            parts("std::function<long (int, char)>::operator()"),
            [
                part("std", &[]),
                part("function", &["long (int, char)"]),
                part("operator()", &[])
            ]
        );
        assert_eq!(parts("f<fn(u8) -> u16>"), [part("f", &["fn(u8) -> u16"])]);
    }

    /// Check that the brackets of operators open nothing.
    #[test]
    fn operators_are_names() {
        assert_eq!(
            parts("N::operator< <int>"),
            [part("N", &[]), part("operator<", &["int"])]
        );
        for name in ["operator<", "operator->", "operator>>", "operator<=>"] {
            let text = format!("A<int>::{name}");
            assert_eq!(parts(&text), [part("A", &["int"]), part(name, &[])]);
        }
        assert!(is_balanced("f<(lambda)->int>") && !is_balanced("f<int"));
    }

    /// Check that text with any brackets gives some parts.
    #[test]
    fn any_text_is_taken() {
        for text in [
            "",
            ">",
            "<",
            "::",
            "a<",
            "a>::b<c",
            "operator",
            "<>>",
            "é<ü>::ä",
        ] {
            assert!(!segments(text).is_empty(), "{text}");
        }
        assert_eq!(list("(a, b), c"), ["(a, b)", "c"]);
        assert_eq!(first_argument("a::b<c, d>"), Some("c"));
    }
}
