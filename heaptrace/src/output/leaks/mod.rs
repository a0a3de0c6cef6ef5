//! What leaks: the sites whose memory grows over a run, and what ended processes had not freed.
//!
//! Stage: output. The floor of a site in each step, the least that it held, is tested for a trend: a leak raises the floor, and
//! a cache that is emptied now and then does not. Formats show what is found here, and add nothing.

mod find;
mod generations;
mod generations_json;
mod growth;
mod json;
mod suppressions;
mod trend;
mod unreachable;
mod unreachable_json;
mod words;

pub(super) use find::Left;
pub use find::{Leaks, Options, find};
pub(super) use generations::{Born, Survivor};
pub(super) use growth::FEWEST;
pub use growth::Growth;
pub use json::write_leaks_json;
pub use suppressions::Suppressions;
pub(super) use unreachable::{Unreachable, UnreachableSite};
pub(super) use words::rate;
