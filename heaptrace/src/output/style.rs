//! Colours of the report, or none.
//!
//! Stage: output.

/// Adds terminal colours to text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    color: bool,
}

impl Style {
    pub(super) fn new(color: bool) -> Self {
        Self { color }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(super) fn number(self, text: &str) -> String {
        self.wrap("1;36", text)
    }

    pub(super) fn warning(self, text: &str) -> String {
        self.wrap("1;33", text)
    }

    /// A change to more.
    pub(super) fn more(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// A change to less.
    pub(super) fn less(self, text: &str) -> String {
        self.wrap("34", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
