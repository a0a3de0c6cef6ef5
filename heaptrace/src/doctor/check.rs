//! One check of the doctor: its name, its verdict, and advice.
//!
//! Part of `doctor`. Plain values; must not know any check in particular.

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Tracing works, with a limit.
    Warn,
    /// Tracing can't work.
    NotOk,
}

/// One line of the doctor's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The thing that was examined.
    pub name: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What the user can do; empty if nothing has to be done.
    pub advice: String,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, found, "")
    }

    pub(super) fn warn(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(name, Verdict::Warn, found, advice)
    }

    pub(super) fn not_ok(
        name: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(name, Verdict::NotOk, found, advice)
    }

    fn new(
        name: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict,
            found: found.into(),
            advice: advice.into(),
        }
    }
}

/// Checks that each document of this repository that a text names exists.
#[cfg(test)]
pub(super) fn documents_exist(text: &str) -> bool {
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut documents = text
        .split([' ', '(', ')', '\n'])
        .filter(|word| word.starts_with("docs/"))
        .peekable();
    documents.peek().is_some() && documents.all(|it| repository.join(it).is_file())
}
