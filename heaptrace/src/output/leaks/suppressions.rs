//! Suppressions in the format of LeakSanitizer: `leak:NAME` for each kind of leak that is known and accepted.
//!
//! Stage: output.

use crate::join::StackId;
use crate::output::frame::StackFrame;
use crate::output::glob;
use crate::output::report_input::ReportInput;

/// A list of known leaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions(Vec<Suppression>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Suppression {
    /// As it is in the file.
    text: String,
    /// The pattern that a whole name must match.
    pattern: String,
}

impl Suppressions {
    /// Reads the lines of a file. Empty ones and comments (`#`) are passed over. The error names the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some(name) = line.strip_prefix("leak:").filter(|name| !name.is_empty()) else {
                return Err(format!(
                    "line {} is not leak:NAME, where NAME is a part of the name of a function, source file or module",
                    number + 1
                ));
            };
            all.push(Suppression {
                text: name.to_owned(),
                pattern: anywhere(name),
            });
        }
        Ok(Self(all))
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// The number of the first suppression that matches a frame of a stack.
    pub(super) fn matching(&self, input: &ReportInput<'_>, stack: StackId) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        let frames = input.stack(stack);
        let names = frames.iter().flat_map(names_of).flatten();
        let names: Vec<&str> = names.collect();
        self.0.iter().position(|it| {
            let mut names = names.iter();
            names.any(|name| glob::is_match(&it.pattern, name))
        })
    }

    /// The text of a suppression.
    pub(super) fn text(&self, number: usize) -> &str {
        self.0.get(number).map_or("", |it| it.text.as_str())
    }
}

/// The names of a frame that a suppression can match.
fn names_of<'a>(frame: &StackFrame<'a>) -> [Option<&'a str>; 3] {
    let module = frame.module.map(|it| it.path.as_str());
    [frame.function, frame.file, module]
}

/// The pattern of a whole name for one that may be anywhere in it, unless `^` and `$` bind it to the ends.
fn anywhere(name: &str) -> String {
    let (start, name) = match name.strip_prefix('^') {
        Some(name) => ("", name),
        None => ("*", name),
    };
    let (end, name) = match name.strip_suffix('$') {
        Some(name) => ("", name),
        None => ("*", name),
    };
    format!("{start}{name}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are matched as LeakSanitizer does, and that a wrong line is named.
    #[test]
    fn names_are_matched() {
        for (name, text, expected) in [
            ("cache", "my_cache_put", true),
            ("^cache", "my_cache_put", false),
            ("^my_*_put$", "my_cache_put", true),
            ("put$", "my_cache_put_all", false),
            ("libfoo.so", "/usr/lib/libfoo.so.1", true),
        ] {
            assert_eq!(glob::is_match(&anywhere(name), text), expected, "{name}");
        }
        let read = Suppressions::parse("# known\n\nleak:init\n  leak:^main$ \n").unwrap();
        assert_eq!((read.text(0), read.text(1)), ("init", "^main$"));
        let wrong = Suppressions::parse("leak:a\nrace:b\n").unwrap_err();
        assert!(wrong.contains("line 2"), "{wrong}");
        assert!(Suppressions::parse("leak:").is_err());
    }
}
