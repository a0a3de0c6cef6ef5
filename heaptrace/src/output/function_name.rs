//! The parts of a function's name: return type, path, parameters.
//!
//! Stage: output. Knows how demanglers write names of C++ and Rust. Names of traced programs can be anything,
//! so every text has parts, and parsing takes time in proportion to its length.

/// A function's name without its last parameter list and the text behind it.
pub(super) fn bare(name: &str) -> &str {
    parameters(name).map_or(name, |at| &name[..at])
}

/// A function's name without its return type and its parameters: `std::vector<int>::push_back` of
/// `void std::vector<int>::push_back<int>(int&&)`.
pub(super) fn path(name: &str) -> &str {
    let bare = bare(name);
    let bare = bare.split(" [clone").next().unwrap_or(bare);
    let mut brackets = Brackets::default();
    let mut start = 0;
    for (at, c) in bare.char_indices() {
        if brackets.pass(bare, at, c) > 0 {
            continue;
        }
        if is_operator_word(bare, at) {
            // The rest is one name: `operator new`, `operator unsigned long`.
            break;
        }
        // `f(int) const::{lambda()#1}::operator()` has no return type.
        if c == ' ' && !bare[..at].ends_with(')') {
            start = at + 1;
        }
    }
    &bare[start..]
}

/// The components of a path: `std`, `vector<int>` and `push_back<int>`.
pub(super) fn components(path: &str) -> Vec<&str> {
    let mut brackets = Brackets::default();
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, c) in path.char_indices() {
        let outside = brackets.pass(path, at, c) == 0;
        if outside && c == ':' && at >= start && path[at..].starts_with("::") {
            parts.push(&path[start..at]);
            start = at + 2;
        }
    }
    parts.push(path.get(start..).unwrap_or_default());
    parts
}

/// The start of the last parameter list.
pub(super) fn parameters(name: &str) -> Option<usize> {
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

/// The text in the angle brackets at the start of a name, and the text behind them: `Type as Trait` and
/// `::method`.
pub(super) fn leading_brackets(name: &str) -> Option<(&str, &str)> {
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

/// The type and the trait of `Type as Trait`.
pub(super) fn type_and_trait(inner: &str) -> (&str, Option<&str>) {
    split_outside(inner, " as ")
}

/// The text before and behind the first such word outside of brackets; the whole text if there is none.
pub(super) fn split_outside<'a>(text: &'a str, word: &str) -> (&'a str, Option<&'a str>) {
    let mut brackets = Brackets::default();
    for (at, c) in text.char_indices() {
        let outside = brackets.pass(text, at, c) == 0;
        if outside && text[at..].starts_with(word) {
            return (&text[..at], Some(&text[at + word.len()..]));
        }
    }
    (text, None)
}

/// Whether the bracket at `at` belongs to an operator's name or to an arrow.
pub(super) fn is_operator(name: &str, at: usize) -> bool {
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

/// Whether the word `operator` begins here.
fn is_operator_word(name: &str, at: usize) -> bool {
    let Some(behind) = name[at..].strip_prefix("operator") else {
        return false;
    };
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    !name[..at].ends_with(is_word) && !behind.starts_with(is_word)
}

/// The nesting of brackets up to a place in a name.
#[derive(Default)]
struct Brackets(usize);

impl Brackets {
    /// The nesting at the next character, which is `c`; a bracket itself is inside.
    fn pass(&mut self, name: &str, at: usize, c: char) -> usize {
        match c {
            '<' | '(' | '{' | '[' if !is_operator(name, at) => {
                self.0 += 1;
                self.0
            }
            '>' | ')' | '}' | ']' if !is_operator(name, at) => {
                let depth = self.0;
                self.0 = depth.saturating_sub(1);
                depth
            }
            _ => self.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the path of a function is found between its return type and its parameters.
    #[test]
    fn paths_are_found() {
        for (name, expected) in [
            ("main", "main"),
            ("f(int, char) const", "f"),
            ("void a::b<int>(int)", "a::b<int>"),
            ("std::map<int, long> a::make<int>(long)", "a::make<int>"),
            ("unsigned long a::b<int>()", "a::b<int>"),
            ("operator new(unsigned long)", "operator new"),
            ("operator new[](unsigned long)", "operator new[]"),
            ("a::B::operator new(unsigned long)", "a::B::operator new"),
            (
                "a::B::operator unsigned long() const",
                "a::B::operator unsigned long",
            ),
            ("bool a::operator< <int>(int, int)", "a::operator< <int>"),
            ("a::B::operator()(int) const", "a::B::operator()"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            (
                "a::f(int) const::{lambda(int)#1}::operator()(int) const",
                "a::f(int) const::{lambda(int)#1}::operator()",
            ),
            ("f() [clone .isra.0]", "f"),
            ("<a::B as c::D>::e", "<a::B as c::D>::e"),
            ("alloc::vec::Vec<T,A>::push", "alloc::vec::Vec<T,A>::push"),
            ("operators_of(int)", "operators_of"),
            ("", ""),
        ] {
            assert_eq!(path(name), expected, "{name}");
        }
    }

    /// Check that a path is divided only between its components.
    #[test]
    fn components_are_divided() {
        for (path, expected) in [
            ("main", &["main"][..]),
            ("a::B<c::d>::e", &["a", "B<c::d>", "e"]),
            ("<a::B as c::D>::e", &["<a::B as c::D>", "e"]),
            (
                "a::f(b::c)::{lambda(d::e)#1}::operator()",
                &["a", "f(b::c)", "{lambda(d::e)#1}", "operator()"],
            ),
            ("a::B::operator<", &["a", "B", "operator<"]),
            ("::", &["", ""]),
            (":::", &["", ":"]),
            ("", &[""]),
        ] {
            assert_eq!(components(path), expected, "{path}");
        }
    }

    /// Check that type and trait of a Rust method are told apart.
    #[test]
    fn types_and_traits_are_divided() {
        let (inner, rest) = leading_brackets("<a::B<c::D as e::F> as g::H<i>>::j").unwrap();
        assert_eq!(rest, "::j");
        assert_eq!(
            type_and_trait(inner),
            ("a::B<c::D as e::F>", Some("g::H<i>"))
        );
        assert_eq!(type_and_trait("a::B"), ("a::B", None));
        assert_eq!(leading_brackets("a<b>"), None);
    }

    /// Check that no text makes parsing fail.
    #[test]
    fn any_text_has_parts() {
        for name in [
            "",
            "((((",
            ">>>>",
            "<<<<",
            "f)(",
            "operator",
            "operator ",
            " ",
            "日本(語)::名",
            "->",
            ":",
            "a:::b",
        ] {
            let _ = (
                path(name),
                components(name),
                bare(name),
                leading_brackets(name),
                type_and_trait(name),
            );
        }
    }
}
