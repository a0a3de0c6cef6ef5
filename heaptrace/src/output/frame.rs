//! One frame of a call stack, with its names.
//!
//! Stage: output.

use std::borrow::Cow;

use super::shorten;
use super::shown::language_name;
use crate::join::{Language, LocationId, Module};
use crate::text;

/// One function of a call stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackFrame<'a> {
    /// The location of its code; inlined functions share one.
    pub(super) location: LocationId,
    /// Its language; `None` for machine code.
    pub(super) language: Option<Language>,
    /// Its name, if it is known.
    pub(super) function: Option<&'a str>,
    /// The file that holds its code, if there is one. A function that an interpreter runs has only a source file.
    pub(super) module: Option<&'a Module>,
    /// The offset in that file, or the bare address; 0 for a function that an interpreter runs.
    pub(super) address: u64,
    /// Its source file, if it is known.
    pub(super) file: Option<&'a str>,
    /// The source line, 0 if unknown.
    pub(super) line: u32,
    /// Whether it was inlined into the next one.
    pub(super) inlined: bool,
}

impl<'a> StackFrame<'a> {
    /// The function's name, or its position: `[libfoo.so+0x1234]`, `[python app.py:7]`. Safe to print.
    pub(super) fn label(&self) -> String {
        text::escape(&self.name()).into_owned()
    }

    /// The same as it is.
    pub(super) fn name(&self) -> Cow<'a, str> {
        if let Some(function) = self.function {
            return function.into();
        }
        match (self.language, self.module) {
            (Some(_), _) => {
                let language = language_name(self.language);
                match self.short_place() {
                    Some(place) => format!("[{language} {place}]").into(),
                    None => format!("[{language}]").into(),
                }
            }
            (None, Some(module)) => format!("[{}+{:#x}]", module.name(), self.address).into(),
            (None, None) => format!("[{:#x}]", self.address).into(),
        }
    }

    /// Whether the label has the source file in place of a name.
    pub(super) fn is_labelled_with_file(&self) -> bool {
        self.function.is_none() && self.language.is_some()
    }

    /// The source file and the line, if they are known: `pool.c:31`. Not safe to print.
    pub(super) fn short_place(&self) -> Option<String> {
        let file = self.short_file()?;
        Some(match self.line {
            0 => file.to_owned(),
            line => format!("{file}:{line}"),
        })
    }

    /// The name of the source file, with its folder where the name alone says nothing: `pool.c`, `json/__init__.py`. Not safe to
    /// print.
    pub(super) fn short_file(&self) -> Option<&'a str> {
        let file = self.file?;
        let name = text::file_name(file);
        // Every package of Python has files with these names.
        if self.language.is_none() || !name.starts_with("__") {
            return Some(name);
        }
        let folder = file.strip_suffix(name).and_then(|it| it.strip_suffix('/'));
        let start = folder.map(|it| it.rfind('/').map_or(0, |at| at + 1));
        Some(start.and_then(|start| file.get(start..)).unwrap_or(name))
    }
}

/// The name of a function for one line, as short as the line needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionLabel {
    /// The function's name, or its position. Safe to print.
    pub text: String,
    /// The file and the line of a function that an interpreter runs, unless the text has them: names such as `<module>` and `main`
    /// are in many files. Safe to print.
    pub place: Option<String>,
}

impl FunctionLabel {
    /// The label of a frame with this name.
    pub(super) fn new(frame: &StackFrame<'_>, name: String) -> Self {
        let is_placed = frame.language.is_some() && !frame.is_labelled_with_file();
        let place = frame.short_place().filter(|_| is_placed);
        Self {
            text: name,
            place: place.map(|place| text::escape(&place).into_owned()),
        }
    }

    /// The label in at most `width` characters: `load (app.py:7)`, without the place if there is no room for it.
    pub fn fitted(&self, width: usize) -> String {
        let length = |text: &str| text.chars().count();
        match &self.place {
            Some(place) if length(&self.text) + length(place) + " ()".len() <= width => {
                format!("{} ({place})", self.text)
            }
            _ => shorten::function(&self.text, width),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame<'a>(function: Option<&'a str>, file: Option<&'a str>, line: u32) -> StackFrame<'a> {
        StackFrame {
            location: LocationId(0),
            language: Some(Language::Python),
            function,
            module: None,
            address: 0,
            file,
            line,
            inlined: false,
        }
    }

    /// Check that a Python function without a name is labelled with what is known of it.
    #[test]
    fn nameless_functions_have_labels() {
        for (file, line, expected) in [
            (Some("/srv/app.py"), 7, "[python app.py:7]"),
            (Some("/srv/app.py"), 0, "[python app.py]"),
            (Some("a\u{1b}.py"), 7, "[python a\\x1b.py:7]"),
            (None, 7, "[python]"),
        ] {
            assert_eq!(frame(None, file, line).label(), expected);
        }
        assert_eq!(
            frame(Some("f\u{1b}"), Some("/srv/app.py"), 7).label(),
            "f\\x1b"
        );
    }

    /// Check that a Python function has its file in a line with enough room, and that machine code has none.
    #[test]
    fn labels_have_places_where_they_fit() {
        let python = frame(Some("load"), Some("/srv/app.py"), 7);
        let of = |frame: &StackFrame<'_>| FunctionLabel::new(frame, frame.label());
        let label = of(&python);
        for (width, expected) in [(15, "load (app.py:7)"), (14, "load"), (3, "l…d")] {
            assert_eq!(label.fitted(width), expected);
        }
        let native = StackFrame {
            language: None,
            ..python
        };
        assert_eq!(of(&native).fitted(80), "load");
        let nameless = frame(None, Some("/srv/app.py"), 7);
        assert_eq!(of(&nameless).fitted(80), "[python app.py:7]");
    }

    /// Check that a Python file has its folder's name where all packages have a file of that name, and no other file has.
    #[test]
    fn files_of_packages_have_their_folder() {
        for (file, expected) in [
            ("/usr/lib/python3.11/json/__init__.py", "json/__init__.py"),
            ("/usr/lib/python3.11/json/decoder.py", "decoder.py"),
            ("json/__main__.py", "json/__main__.py"),
            ("__main__.py", "__main__.py"),
            ("/__init__.py", "/__init__.py"),
            ("/srv/__pycache__/", "__pycache__"),
            (
                "<frozen importlib._bootstrap>",
                "<frozen importlib._bootstrap>",
            ),
            ("<string>", "<string>"),
            ("日本/__init__.py", "日本/__init__.py"),
        ] {
            let found = frame(None, Some(file), 0);
            assert_eq!(found.short_file(), Some(expected), "{file}");
            let native = StackFrame {
                language: None,
                ..found
            };
            assert_eq!(native.short_file(), Some(text::file_name(file)));
        }
    }
}
