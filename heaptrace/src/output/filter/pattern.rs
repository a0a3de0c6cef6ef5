//! A pattern for names: a glob or a regular expression.
//!
//! Stage: output.

use regex_lite::{Regex, RegexBuilder};

use crate::output::glob::Glob;

/// Most memory of a regular expression. It bounds the time for a name, too, which is linear in both.
const MOST: usize = 64 << 10;

/// The deepest nesting of a regular expression.
const DEEPEST: u32 = 50;

/// A pattern.
#[derive(Clone, Debug)]
pub(super) enum Pattern {
    /// Matches the whole name.
    Glob(Glob),
    /// Matches any part of the name.
    Regex(Regex),
}

impl Pattern {
    pub(super) fn glob(text: &str) -> Self {
        Self::Glob(Glob::new(text))
    }

    /// A regular expression; the error says why it is none.
    pub(super) fn regex(text: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(text)
            .size_limit(MOST)
            .nest_limit(DEEPEST)
            .build();
        built
            .map(Self::Regex)
            .map_err(|error| format!("this is no regular expression: {error}"))
    }

    /// Whether a name matches.
    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Glob(glob) => glob.matches(name),
            Self::Regex(regex) => regex.is_match(name),
        }
    }
}
