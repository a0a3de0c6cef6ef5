//! The reader's part: finds in a file's code and debug information what is there about calls of allocators.
//!
//! Stage: types. Runs in a reader, on files that may contain anything.

mod answer;
mod cfa;
mod code;
mod constructor;
mod debug_info;
mod flow;
mod frames;
mod names;
mod state;
mod units;
mod variables;
mod vtables;
mod walk;

pub(crate) use answer::answer;
pub(crate) use vtables::answer as answer_classes;
