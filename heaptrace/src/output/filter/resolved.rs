//! A filter: conditions, combined by `and`, `or` and `not`.
//!
//! Stage: output. Must not know how it was written.

use std::fmt;

use super::condition::Condition;
use super::key::Scope;
use super::tree::Tree;
use crate::profile::BlockCondition;

/// A filter, as on the command line: `function=GLOB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    /// Whether the text is an `or`, which needs parentheses beside an `and`.
    is_choice: bool,
    tree: Tree<Condition>,
}

/// As it was written.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Filter {
    pub(super) fn new(text: String, is_choice: bool, tree: Tree<Condition>) -> Self {
        Self {
            text,
            is_choice,
            tree,
        }
    }

    /// The same with what its names stand for, for programs.
    pub(in crate::output) fn in_full(&self) -> String {
        self.tree.to_string()
    }

    /// Its parts that must all hold: those about processes alone, and the others.
    pub(in crate::output) fn parts(&self) -> (Vec<&Tree<Condition>>, Vec<&Tree<Condition>>) {
        let is_of_process = |part: &&Tree<Condition>| !part.has(&|it| it.scope() != Scope::Process);
        self.tree.conjuncts().into_iter().partition(is_of_process)
    }

    /// Whether a part of it selects whole processes.
    pub fn selects_processes(&self) -> bool {
        !self.parts().0.is_empty()
    }

    /// Whether a part of it selects some allocations of a process, and not others.
    pub fn selects_sites(&self) -> bool {
        !self.parts().1.is_empty()
    }

    /// Whether it needs symbols.
    pub fn is_named(&self) -> bool {
        self.tree.has(&Condition::is_named)
    }

    /// Whether only a file with single blocks can tell what matches: it is about their age or time.
    pub fn needs_blocks(&self) -> bool {
        self.tree.has(&|it| it.scope() == Scope::Block)
    }

    /// What it asks of single blocks.
    pub fn block_conditions(&self) -> Vec<BlockCondition> {
        let mut found: Vec<BlockCondition> = Vec::new();
        self.tree.for_each(&mut |it| {
            let new = it.of_block().filter(|it| !found.contains(it));
            found.extend(new);
        });
        found
    }

    /// Whether it is about sizes of blocks.
    pub fn is_of_sizes(&self) -> bool {
        self.tree.has(&Condition::is_size)
    }

    /// Whether it is about types of blocks.
    pub fn is_of_types(&self) -> bool {
        self.tree.has(&Condition::is_type)
    }

    /// Whether it is about names of threads.
    pub fn is_of_threads(&self) -> bool {
        self.tree.has(&Condition::is_thread)
    }
}

/// Filters that must all match, as one text; empty without any.
pub fn together(filters: &[Filter]) -> String {
    let operand = |filter: &Filter| match filter.is_choice && filters.len() > 1 {
        true => format!("({filter})"),
        false => filter.to_string(),
    };
    let all: Vec<_> = filters.iter().map(operand).collect();
    all.join(" and ")
}
