//! A line of the live view: text, and how it stands out.
//!
//! Stage: view. Must not know terminals.

/// How a line stands out, if the terminal shows colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Not at all.
    #[default]
    Plain,
    /// The most important line.
    Strong,
    /// Headings and the keys.
    Faint,
    /// Something makes the numbers less complete or exact.
    Warning,
}

/// A line without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The text.
    pub text: String,
    /// How it stands out.
    pub tone: Tone,
}

impl Line {
    /// A line with a tone.
    pub(super) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }

    /// The line with the escape sequences of its tone.
    pub fn colored(&self) -> String {
        let code = match self.tone {
            Tone::Plain => return self.text.clone(),
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Warning => "1;33",
        };
        if self.text.is_empty() {
            return String::new();
        }
        format!("\x1b[{code}m{}\x1b[0m", self.text)
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self::new(Tone::Plain, text)
    }
}
