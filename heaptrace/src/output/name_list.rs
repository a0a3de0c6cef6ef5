//! A list of patterns, in which a name is looked up quickly: each frame of each stack is.
//!
//! Stage: output. Must not know what the patterns stand for.

use super::glob::is_match;

/// Patterns for whole names, as in `glob.rs`.
pub(super) struct NameList {
    /// Those that begin with a character of their own, by its first byte.
    by_first: Vec<Vec<Pattern>>,
    /// Those that begin with a star or a question mark.
    others: Vec<Pattern>,
}

/// A pattern with its parts.
struct Pattern {
    text: &'static str,
    /// What is before the first star, between two, and behind the last one. Only the first, if there is no star.
    parts: Vec<&'static str>,
    /// Whether it has question marks.
    has_single: bool,
}

impl NameList {
    /// The patterns of these texts, which have spaces in between.
    pub(super) fn new(texts: &[&'static str]) -> Self {
        let mut list = Self {
            by_first: (0..=u8::MAX).map(|_| Vec::new()).collect(),
            others: Vec::new(),
        };
        for text in texts.iter().flat_map(|text| text.split_whitespace()) {
            let pattern = Pattern {
                text,
                parts: text.split('*').collect(),
                has_single: text.contains('?'),
            };
            let first = text.bytes().next().filter(|it| !matches!(it, b'*' | b'?'));
            let bucket = first.and_then(|it| list.by_first.get_mut(usize::from(it)));
            bucket.unwrap_or(&mut list.others).push(pattern);
        }
        list
    }

    /// Whether a pattern matches the whole name.
    pub(super) fn has(&self, name: &str) -> bool {
        let first = name.bytes().next();
        let bucket = first.and_then(|it| self.by_first.get(usize::from(it)));
        let mut patterns = bucket.into_iter().flatten().chain(&self.others);
        patterns.any(|it| it.matches(name))
    }
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
        if self.has_single {
            return is_match(self.text, name);
        }
        let [first, middle @ .., last] = &self.parts[..] else {
            return self.text == name;
        };
        let rest = name.strip_prefix(first);
        let Some(mut rest) = rest.and_then(|it| it.strip_suffix(last)) else {
            return false;
        };
        // The first place of each part leaves most for those behind it.
        middle.iter().all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a list has the names that one of its patterns matches, with every form of pattern.
    #[test]
    fn lists_match_as_their_patterns() {
        let patterns = [
            "malloc",
            "sds*",
            "*_xmalloc",
            "a*b*c",
            "*::new*",
            "op?new*",
            "?x",
            "*",
            "**z",
            "x**",
        ];
        let names = [
            "",
            "malloc",
            "mallocs",
            "sds",
            "sdsnew",
            "my_xmalloc",
            "_xmalloc",
            "abc",
            "ac",
            "aXbYc",
            "abcb",
            "a::new",
            "::newer",
            "op new(int)",
            "op new",
            "opnew",
            "éx",
            "x",
            "z",
            "xy",
            "aa",
            "abbc",
            "acb",
        ];
        for pattern in patterns {
            let list = NameList::new(&[pattern]);
            for name in names {
                assert_eq!(list.has(name), is_match(pattern, name), "{pattern} {name}");
            }
        }
        let several = NameList::new(&["malloc sds*", "*_xmalloc"]);
        let has = ["malloc", "sdsnew", "my_xmalloc", "calloc"].map(|it| several.has(it));
        assert_eq!(has, [true, true, true, false]);
    }
}
