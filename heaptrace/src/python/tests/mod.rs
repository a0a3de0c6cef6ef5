//! Tests with the interpreters of this machine.
//!
//! Part of `python`.

mod crafted;
mod files;
mod interpreters;
mod line_tables;
mod live;
