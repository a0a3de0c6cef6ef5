//! Reading `/proc`: which processes run, what they have mapped, whose they are.
//!
//! No stage: it is below all of them.

pub mod build_id;
pub mod maps;
pub mod owner;
pub mod processes;
