//! Stage view: shows a run's numbers while they change.

mod names;
mod screen;
mod table;
mod terminal;

pub use screen::{Layout, Screen, Size};
pub use table::{FUNCTIONS, Rows, Table, ranked};
pub use terminal::{Terminal, size_of};
