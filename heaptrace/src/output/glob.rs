//! Patterns for names.
//!
//! Stage: output. `*` matches any characters including `/`, and `?` matches one. Every other character
//! matches itself. There are no character classes, because `operator[]` and `[u8; 4]` are names of functions.

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob(String);

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }

    /// Whether the pattern matches the whole name. Case matters.
    pub(super) fn matches(&self, name: &str) -> bool {
        is_match(&self.0, name)
    }
}

/// Whether a pattern matches the whole name.
///
/// The time is at worst proportional to the product of both lengths.
pub(super) fn is_match(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut rest) = (pattern, name);
    // The pattern behind the last star, and the part of the name where it was tried.
    let mut again: Option<(&str, &str)> = None;
    loop {
        match (pattern.chars().next(), rest.chars().next()) {
            (Some('*'), _) => {
                pattern = &pattern[1..];
                if pattern.is_empty() {
                    return true;
                }
                again = Some((pattern, rest));
                continue;
            }
            (None, None) => return true,
            (Some(p), Some(c)) if p == '?' || p == c => {
                pattern = &pattern[p.len_utf8()..];
                rest = &rest[c.len_utf8()..];
                continue;
            }
            _ => {}
        }
        // Let the last star match one more character.
        let Some((behind, from)) = again else {
            return false;
        };
        let Some(taken) = from.chars().next() else {
            return false;
        };
        rest = &from[taken.len_utf8()..];
        pattern = behind;
        again = Some((behind, rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every kind of pattern character matches at the ends and in between.
    #[test]
    fn patterns_match() {
        for (pattern, name, expected) in [
            ("main", "main", true),
            ("main", "domain", false),
            ("main", "mainly", false),
            ("Main", "main", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*main", "domain", true),
            ("main*", "main::inner", true),
            ("*main*", "a::main::b", true),
            ("m?in", "main", true),
            ("m?in", "min", false),
            ("?", "日", true),
            ("日*語", "日本語", true),
            ("a*b*c", "axxbyybzzc", true),
            ("a*b*c", "axxbyybzz", false),
            ("/system.slice/*", "/system.slice/a/b", true),
            ("operator[]", "operator[]", true),
            ("*[u8; 4]*", "f::<[u8; 4]>", true),
            ("**a", "ba", true),
            ("a?*", "a", false),
        ] {
            assert_eq!(
                Glob::new(pattern).matches(name),
                expected,
                "{pattern} {name}"
            );
        }
    }

    /// Check that patterns that backtrack a lot finish soon.
    #[test]
    fn backtracking_is_bounded() {
        let pattern = "a*".repeat(200) + "b";
        assert!(!Glob::new(&pattern).matches(&"a".repeat(4000)));
    }
}
