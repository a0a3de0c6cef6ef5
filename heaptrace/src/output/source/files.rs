//! The source files of a listing, with their text, which the caller brings.
//!
//! Stage: output.

use super::lines::SourceFile;

/// The source files of a listing.
#[derive(Clone, Debug)]
pub struct SourceFiles {
    /// The files, each with its text.
    pub files: Vec<(SourceFile, SourceText)>,
    /// How many there are, with those that are left out.
    pub all: usize,
    /// Whether the user chose them: then their lines are shown without gaps.
    pub are_chosen: bool,
}

/// The text of a source file.
#[derive(Clone, Debug, Default)]
pub struct SourceText {
    /// Its lines, as far as they could be read. `None`: it is not at hand.
    pub text: Option<String>,
    /// The path where it was read.
    pub read_from: String,
    /// Whether it was changed after the program was recorded.
    pub is_newer: bool,
}

impl SourceText {
    /// The text with the lines of a file that have memory alone, and empty ones between them. All files of a large program are too much
    /// to keep.
    #[must_use]
    pub fn of_lines(self, file: &SourceFile) -> Self {
        let last = file.lines.keys().next_back().copied().unwrap_or(0);
        let text = self.text.map(|text| {
            let numbered = (1_u32..=last).zip(text.lines());
            let lines = numbered.map(|(number, line)| match file.lines.contains_key(&number) {
                true => format!("{line}\n"),
                false => "\n".to_owned(),
            });
            lines.collect()
        });
        Self { text, ..self }
    }
}
