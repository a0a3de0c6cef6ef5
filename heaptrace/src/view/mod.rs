//! Stage view: shows a run's numbers while they change.

mod columns;
mod foot;
mod head;
mod keys;
mod leaks;
mod line;
mod names;
mod screen;
mod table;
mod terminal;
mod words;

pub use foot::{Foot, Part};
pub use keys::Key;
pub use line::{Line, Tone};
pub use screen::{Layout, Screen, Size};
pub use table::{Rows, Table, ranked};
pub use terminal::{Terminal, Use, size_of};
pub use words::number;
