//! The sections of docs/types.md that are written by a command.
//!
//! Part of types. Each ends with the page, or where the next one begins. It must not know what is in them.

use std::fs;

use anyhow::{Context, Result};

use crate::workspace;

/// The page, below the repository's root.
const PAGE: &str = "docs/types.md";

/// A section that is written by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Builds,
    Cost,
    Programs,
}

impl Section {
    /// The line above what is written.
    fn mark(self) -> &'static str {
        match self {
            Self::Builds => "<!-- Written by `cargo xtask types`: -->\n\n",
            Self::Cost => "<!-- Written by `cargo xtask types --cost`: -->\n\n",
            Self::Programs => "<!-- Written by `cargo xtask types --programs`: -->\n\n",
        }
    }
}

/// Replaces a section by what is made of its old text, and prints it.
pub(super) fn replace(section: Section, new: impl FnOnce(&str) -> Result<String>) -> Result<()> {
    let path = workspace::root().join(PAGE);
    let read =
        || fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()));
    let page = read()?;
    let (_, old, _) = parts(&page, section)?;
    let new = new(old)?;
    // Measuring takes minutes; the page may have been changed meanwhile.
    let page = read()?;
    let (before, _, behind) = parts(&page, section)?;
    fs::write(&path, format!("{before}{new}{behind}")).context("cannot write the page")?;
    print!("{new}");
    println!("Written to {}", path.display());
    Ok(())
}

/// What is before a section, its text, and what is behind it.
fn parts(page: &str, section: Section) -> Result<(&str, &str, &str)> {
    let mark = section.mark();
    let begin = page
        .find(mark)
        .with_context(|| format!("{PAGE} has no line {}", mark.trim()))?;
    let begin = begin + mark.len();
    let (before, rest) = page.split_at(begin);
    let end = rest.find("\n## ").unwrap_or(rest.len());
    let (text, behind) = rest.split_at(end);
    Ok((before, text, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a section is found between its mark and the next heading, and the last one up to the end.
    #[test]
    fn sections_have_ends() {
        let page = "# A\n\n<!-- Written by `cargo xtask types --cost`: -->\n\nold\n\n## B\n\n<!-- Written by `cargo xtask types`: -->\n\ntable\n";
        let (before, text, behind) = parts(page, Section::Cost).unwrap();
        assert_eq!(text, "old\n");
        assert_eq!(format!("{before}{text}{behind}"), page);
        let (_, text, behind) = parts(page, Section::Builds).unwrap();
        assert_eq!((text, behind), ("table\n", ""));
        assert!(parts(page, Section::Programs).is_err());
    }
}
