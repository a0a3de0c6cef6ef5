//! The texts in the frames of a flame graph: a function's name in three lengths, and the longest that fits.
//!
//! Stage: output. The script of the page chooses in the same way, at any width.

use crate::output::folded::Name;
use crate::output::{readable, shorten};

/// A name in three lengths.
#[derive(Debug, PartialEq)]
pub(super) struct Labels {
    /// The whole name, without the type that the function returns.
    pub(super) full: String,
    /// Without parameters and template arguments: `shop::Shelf<…>::put(…)`.
    pub(super) brief: String,
    /// The function alone: `put`.
    pub(super) bare: String,
}

/// The longest name that is kept whole. It bounds the file; C++ has names of many kilobytes.
const LONGEST: usize = 2000;

impl Labels {
    /// The lengths of a frame's name, as people write it or in full.
    pub(super) fn of(name: &Name, in_full: bool) -> Self {
        let text = name.text.as_str();
        // Names of processes and `[libfoo.so+0x1234]` have no parts.
        if name.module.is_none() || text.starts_with('[') {
            let whole = cut(text, LONGEST);
            return Self {
                full: whole.clone(),
                brief: whole.clone(),
                bare: whole,
            };
        }
        if name.language.is_some() {
            // Names of Python have no types.
            return Self {
                full: cut(text, LONGEST),
                brief: cut(text, LONGEST),
                bare: cut(shorten::python_own_name(text), LONGEST),
            };
        }
        let text = readable::for_people(text, in_full);
        let [full, brief, bare] = shorten::lengths(&text).map(|it| cut(&it, LONGEST));
        Self { full, brief, bare }
    }

    /// The text for a width, in characters: the longest name that fits. The shortest is cut at its end, so
    /// that the function can be recognised.
    pub(super) fn fit(&self, width: usize) -> String {
        let names = [&self.full, &self.brief];
        let fits = names.into_iter().find(|it| it.chars().count() <= width);
        cut(fits.unwrap_or(&self.bare), width)
    }
}

/// Keeps the beginning of a text.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(std::iter::once('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::Language;

    fn lengths_of(text: &str, in_full: bool) -> Labels {
        let name = Name {
            text: text.to_owned(),
            module: Some("app".to_owned()),
            language: None,
            is_user: true,
        };
        Labels::of(&name, in_full)
    }

    fn labels(text: &str) -> Labels {
        lengths_of(text, false)
    }

    /// Check that a label begins with the function's name at any width, and is cut at its end.
    #[test]
    fn functions_stay_readable() {
        let long =
            "shop::Shelf<std::vector<int, std::allocator<int>>>::put(std::map<int, int> const&)";
        for (width, expected) in [
            (
                100,
                "shop::Shelf<std::vector<int>>::put(std::map<int, int> const&)",
            ),
            (40, "shop::Shelf<…>::put(…)"),
            (21, "put"),
            (3, "put"),
            (2, "p…"),
            (1, "…"),
        ] {
            assert_eq!(labels(long).fit(width), expected);
        }
        assert_eq!(lengths_of(long, true).fit(100), long);
        assert_eq!(labels("copy_text_of_session").fit(12), "copy_text_o…");
    }

    /// Check that the shortest name says what is called, also for closures, operators, methods of traits, and
    /// functions with the type that they return.
    #[test]
    fn the_shortest_name_is_the_function() {
        for (name, expected) in [
            ("malloc", "malloc"),
            ("f()", "f"),
            ("std::vector<int>::push_back(int&&)", "push_back"),
            ("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "drop"),
            ("app::main::{{closure}}", "main::{{closure}}"),
            ("app::try_run::<u8, app::Item>", "try_run<…>"),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                "main::{lambda(…)#1}::operator()",
            ),
            ("operator new(unsigned long)", "operator new"),
            ("void* shop::make<shop::Shelf, int>(int&&)", "make<…>"),
            ("void make<int>(int)", "make<…>"),
            ("x::(anonymous namespace)::f(unsigned long)", "f"),
            ("[libfoo.so+0x12]", "[libfoo.so+0x12]"),
            ("f [clone .cold]", "f"),
            (
                "std::ostream& std::operator<< <int>(std::ostream&, int)",
                "operator<< <…>",
            ),
            ("Shelf::operator bool() const", "operator bool"),
            ("", ""),
            ("::", "::"),
            ("a::", "a::"),
        ] {
            assert_eq!(labels(name).bare, expected, "{name}");
        }
        assert_eq!(labels("void* make<int>(int)").full, "make<int>(int)");
        let process = Name {
            text: "server (41)".to_owned(),
            module: None,
            language: None,
            is_user: false,
        };
        assert_eq!(Labels::of(&process, false).bare, "server (41)");
    }

    /// Check that the shortest name of a Python function is its own, and that what is in brackets is kept.
    #[test]
    fn names_of_python_have_no_types() {
        let labels = |text: &str| {
            let name = Name {
                text: text.to_owned(),
                module: Some("app.py".to_owned()),
                language: Some(Language::Python),
                is_user: true,
            };
            Labels::of(&name, false)
        };
        let name = "Server.handle.<locals>.<lambda>";
        assert_eq!(labels(name).full, name);
        assert_eq!(labels(name).brief, name);
        assert_eq!(labels(name).fit(9), "<lambda>");
        assert_eq!(labels("<module>").fit(5), "<mod…");
        assert_eq!(labels("[python app.py:7]").bare, "[python app.py:7]");
    }

    /// Check that a name of any length has bounded labels.
    #[test]
    fn names_are_bounded() {
        let name = "n".repeat(1 << 20);
        let labels = labels(&name);
        for label in [&labels.full, &labels.brief, &labels.bare] {
            assert_eq!(label.chars().count(), LONGEST);
        }
    }
}
