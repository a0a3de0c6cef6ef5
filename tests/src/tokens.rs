//! Splits Rust source text into words and punctuation, for tests about the form of the project's sources.
//!
//! Part of the harness. It knows the lexical rules that matter here, and no grammar.

/// The tokens of a source text: identifiers, numbers, lifetimes, `::`, and single characters of punctuation.
///
/// Comments and white space are left out. Each string and each character literal becomes `""`.
pub(crate) fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, is_literal) = token_length(rest, first);
        let (token, after) = rest.split_at(length.min(rest.len()));
        if is_literal {
            found.push("\"\"");
        } else if !first.is_whitespace() && !token.starts_with("//") && !token.starts_with("/*") {
            found.push(token);
        }
        rest = after;
    }
    found
}

/// The length of the token at the start of a text, and whether it is a literal in quotes.
fn token_length(text: &str, first: char) -> (usize, bool) {
    if text.starts_with("//") {
        return (text.find('\n').unwrap_or(text.len()), false);
    }
    if text.starts_with("/*") {
        return (text.find("*/").map_or(text.len(), |at| at + 2), false);
    }
    let unprefixed = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - unprefixed.len();
    if prefix <= 1 && unprefixed.starts_with('"') {
        return (prefix + quoted_length(unprefixed, '"'), true);
    }
    if prefix <= 1
        && let Some(raw) = unprefixed.strip_prefix('r')
    {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(content) = raw[hashes..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let length = content
                .find(&end)
                .map_or(content.len(), |at| at + end.len());
            return (prefix + 1 + hashes + 1 + length, true);
        }
    }
    if first == '\'' || text.starts_with("b'") {
        return character_length(text);
    }
    if first.is_alphanumeric() || first == '_' {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end = text.find(|letter| !is_part(letter));
        return (end.unwrap_or(text.len()), false);
    }
    if text.starts_with("::") {
        return (2, false);
    }
    (first.len_utf8(), false)
}

/// The length of a literal that ends at the next quote without a backslash before it.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        if letter == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    text.len()
}

/// The length of a character such as `'a'`, which is a literal, or of a lifetime such as `'a`.
fn character_length(text: &str) -> (usize, bool) {
    let quoted = text.trim_start_matches('b');
    let prefix = text.len() - quoted.len();
    let mut letters = quoted.chars().skip(1);
    let is_escaped = letters.next() == Some('\\');
    if is_escaped || letters.next() == Some('\'') {
        return (prefix + quoted_length(quoted, '\''), true);
    }
    let name = &quoted[1..];
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let end = name.find(|letter| !is_part(letter));
    (1 + end.unwrap_or(name.len()), false)
}

#[cfg(test)]
mod tests {
    use super::tokens;

    /// Check that comments and the contents of literals are no tokens, in any way of writing them.
    #[test]
    fn only_code_is_left() {
        for (text, expected) in [
            ("a::b // c\n;", vec!["a", "::", "b", ";"]),
            ("/* a\n b */ c", vec!["c"]),
            (
                r#"f("a // \" b", x)"#,
                vec!["f", "(", "\"\"", ",", "x", ")"],
            ),
            (
                r##"b"a" c"b" r#"a " b"# br"\" x"##,
                vec!["\"\"", "\"\"", "\"\"", "\"\"", "x"],
            ),
            (r"'a' '\'' b'{' '\u{e9}' x", vec!["\"\""; 4]),
            ("&'a T", vec!["&", "'a", "T"]),
            ("bread r", vec!["bread", "r"]),
        ] {
            let mut found = tokens(text);
            if text.starts_with("'a' ") {
                assert_eq!(found.pop(), Some("x"));
            }
            assert_eq!(found, expected, "{text}");
        }
    }
}
