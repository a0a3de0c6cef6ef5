//! Text that is broken into lines of a width.
//!
//! Stage: output.

/// The lines of a text at a width, broken between words; the first line begins with `first`, all others with as
/// many spaces.
pub(in crate::output) fn lines(first: &str, text: &str, width: usize) -> Vec<String> {
    let indent = first.chars().count();
    let mut lines = vec![first.to_owned()];
    let mut used = indent;
    let mut is_empty = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !is_empty && used + 1 + length > width {
            lines.push(" ".repeat(indent));
            used = indent;
            is_empty = true;
        }
        if let Some(line) = lines.last_mut() {
            if !is_empty {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += length;
            is_empty = false;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that lines keep to the width where words allow it, and are indented alike.
    #[test]
    fn lines_keep_to_the_width() {
        assert_eq!(
            lines("  a  ", "one two three", 12),
            ["  a  one two", "     three"]
        );
        assert_eq!(lines("", "one", 1), ["one"]);
        assert_eq!(lines("> ", "größere wörter", 9), ["> größere", "  wörter"]);
    }
}
