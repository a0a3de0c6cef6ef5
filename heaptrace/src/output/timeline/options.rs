//! How a plot of memory over time looks.
//!
//! Stage: output.

/// How a plot looks.
#[derive(Clone, Copy, Debug)]
pub struct TimelineOptions {
    /// Whether to use colors.
    pub color: bool,
    /// Whether the reader has more characters than those of ASCII.
    pub unicode: bool,
    /// The width of the terminal, if it is one.
    pub width: Option<usize>,
}
