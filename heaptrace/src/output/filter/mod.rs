//! The filter language: selects allocations by names and numbers, combined by `and`, `or` and `not`.
//!
//! Stage: output. A text becomes an [`Expression`] (`lexer.rs`, `parser.rs`), in which names may stand for the expressions of a file
//! ([`Definitions`]). With these it is a [`Filter`], whose conditions are about a frame, a process or a site (`condition.rs`). Must not
//! know profiles: `select.rs` applies filters to them.

mod condition;
mod definitions;
mod expression;
#[cfg(feature = "fuzz")]
pub(super) mod fuzz;
mod key;
mod lexer;
mod parser;
mod pattern;
mod problem;
mod range;
mod resolved;
#[cfg(test)]
mod tests;
mod tree;

pub(super) use condition::{Condition, SiteNumbers};
pub use definitions::Definitions;
pub use expression::Expression;
pub(super) use key::Scope;
pub use problem::Problem;
pub use resolved::{Filter, together};
pub(super) use tree::Tree;
