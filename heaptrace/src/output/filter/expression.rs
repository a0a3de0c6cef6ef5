//! An expression as it was written: its conditions, and the names of other expressions.
//!
//! Stage: output. `definitions.rs` makes a filter of it. Must not know what names stand for.

use std::fmt;

use super::condition::Condition;
use super::problem::{Place, Problem};
use super::tree::Tree;

/// An expression of the filter language, in which names may stand for other expressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    tree: Tree<Part>,
}

/// A leaf of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Condition(Condition),
    Name(Name),
}

/// The name of another expression. Where it stands makes no difference.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) name: String,
    /// Where it stands.
    pub(super) place: Place,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Name {}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condition(condition) => condition.fmt(f),
            Self::Name(name) => f.write_str(&name.name),
        }
    }
}

impl Expression {
    pub(super) fn new(text: &str, tree: Tree<Part>) -> Self {
        Self {
            text: text.to_owned(),
            tree,
        }
    }

    pub(super) fn tree(&self) -> &Tree<Part> {
        &self.tree
    }

    /// Whether it has names of other expressions.
    pub fn has_names(&self) -> bool {
        self.tree.has(&|part| matches!(part, Part::Name(_)))
    }

    /// A problem with a name in it.
    pub(super) fn problem(&self, name: &Name, why: impl Into<String>) -> Problem {
        let text: Vec<char> = self.text.chars().collect();
        Problem::new(&text, &name.place, why)
    }
}
