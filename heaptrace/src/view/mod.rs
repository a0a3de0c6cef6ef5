//! Stage view: what is found while a run goes on, shown as it changes.

mod names;
mod screen;
mod table;
mod terminal;

pub use screen::{Layout, Screen, Size};
pub use table::{FUNCTIONS, Rows, Table, ranked};
pub use terminal::{Terminal, size_of};
