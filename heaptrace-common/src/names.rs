//! Patterns for process names, as in a shell, several at a time.
//!
//! The agent compiles them and the kernel program matches names; both sides and the tests run this file. A
//! pattern is a sequence of states, one more than the letters that it requires. The states of all patterns
//! are bits of one word. Each letter of a name advances every state whose pattern allows it. So a name takes
//! at most 16 steps, however many patterns there are.

use crate::limits::COMM_BYTES;

/// Compiled patterns. Each state is a bit of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NamePatterns {
    /// The first state of each pattern.
    pub first: u64,
    /// The last state of each pattern: a name that ends there matches.
    pub last: u64,
    /// States that every letter keeps: those after a `*`.
    pub stays: u64,
    /// For each letter, the states that it advances to the next state.
    pub moves: [u64; 256],
}

/// Why a pattern can't be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// It requires more letters than a name can have.
    TooLong,
    /// All patterns together are too long.
    TooMany,
    /// A `[` without its `]`, or a `\` at the end.
    Unfinished,
}

impl NamePatterns {
    /// No patterns: no name matches.
    pub const NONE: Self = Self {
        first: 0,
        last: 0,
        stays: 0,
        moves: [0; 256],
    };

    /// Adds a pattern. `*` matches any letters, `?` any one letter, `[a-c]` one of these letters, `[!a-c]`
    /// any other letter, and `\` makes the next sign an ordinary letter.
    pub fn add(&mut self, pattern: &[u8]) -> Result<(), PatternError> {
        let mut compiled = *self;
        // States are assigned from the lowest bit on; the highest one assigned is the last state of a pattern.
        let first = u64::BITS - compiled.last.leading_zeros();
        let mut state = first;
        let bit = |state: u32| 1_u64.checked_shl(state).ok_or(PatternError::TooMany);
        compiled.first |= bit(state)?;
        let mut at = 0;
        while let Some(letter) = pattern.get(at) {
            at += 1;
            if *letter == b'*' {
                compiled.stays |= bit(state)?;
                continue;
            }
            let here = bit(state)?;
            let mut wanted = [false; 256];
            at = letters(pattern, at - 1, &mut wanted)?;
            // A zero ends a name and is no letter.
            for (moves, is_wanted) in compiled.moves.iter_mut().zip(wanted).skip(1) {
                if is_wanted {
                    *moves |= here;
                }
            }
            state += 1;
        }
        if (state - first) as usize >= COMM_BYTES {
            return Err(PatternError::TooLong);
        }
        compiled.last |= bit(state)?;
        *self = compiled;
        Ok(())
    }

    /// Whether a name, which ends at its first zero, matches a pattern.
    #[inline(always)]
    pub fn matches(&self, name: &[u8; COMM_BYTES]) -> bool {
        let mut states = self.first;
        for letter in name {
            if *letter == 0 {
                break;
            }
            states = (states & self.moves[*letter as usize]) << 1 | states & self.stays;
        }
        states & self.last != 0
    }
}

/// Marks the letters that the part of a pattern at an index matches; returns the index of the next part.
fn letters(pattern: &[u8], mut at: usize, wanted: &mut [bool; 256]) -> Result<usize, PatternError> {
    let next = |at: &mut usize| {
        let letter = pattern.get(*at).copied().ok_or(PatternError::Unfinished)?;
        *at += 1;
        Ok(letter)
    };
    match next(&mut at)? {
        b'?' => *wanted = [true; 256],
        b'\\' => wanted[next(&mut at)? as usize] = true,
        b'[' => {
            let is_none_of = pattern.get(at) == Some(&b'!') || pattern.get(at) == Some(&b'^');
            at += usize::from(is_none_of);
            let begin = at;
            loop {
                let low = next(&mut at)?;
                if low == b']' && at > begin + 1 {
                    break;
                }
                let is_range = pattern.get(at) == Some(&b'-')
                    && pattern.get(at + 1).is_some_and(|letter| *letter != b']');
                let high = if is_range {
                    at += 1;
                    next(&mut at)?
                } else {
                    low
                };
                for letter in low..=high {
                    wanted[letter as usize] = true;
                }
            }
            if is_none_of {
                for letter in wanted {
                    *letter = !*letter;
                }
            }
        }
        letter => wanted[letter as usize] = true,
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn compiled(patterns: &[&str]) -> NamePatterns {
        let mut all = NamePatterns::NONE;
        for pattern in patterns {
            all.add(pattern.as_bytes()).unwrap();
        }
        all
    }

    fn name(text: &str) -> [u8; COMM_BYTES] {
        let mut name = [0; COMM_BYTES];
        name[..text.len()].copy_from_slice(text.as_bytes());
        name
    }

    /// Check that each sign of a pattern matches the names that it matches in a shell, and no others.
    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, matching, others) in [
            ("redis", "redis", "redi redis2 xredis REDIS"),
            ("redis*", "redis redis-server redis2", "redi xredis"),
            ("*sql*", "mysqld sql postgresql", "sq msyql"),
            ("*d", "mysqld d dd", "mysql ad-"),
            ("a*b*c", "abc axxbyyc abcbc", "ab acb abca"),
            ("php?.?", "php7.4 php8.2", "php7. php74 php7.42"),
            ("[a-c]x", "ax bx cx", "dx x aax"),
            ("[!a-c]x", "dx -x", "ax bx x"),
            ("[]]x[a-]", "]x- ]xa", "]xb x- ax-"),
            (r"\*\?", "*?", "ab *x"),
            ("kworker/*", "kworker/0:1", "kworker"),
        ] {
            let patterns = compiled(&[pattern]);
            for word in matching.split(' ') {
                assert!(patterns.matches(&name(word)), "{pattern} matches {word}");
            }
            for word in others.split(' ') {
                assert!(!patterns.matches(&name(word)), "{pattern} against {word}");
            }
        }
        assert!(compiled(&["*"]).matches(&name("")));
        assert!(!compiled(&["?*"]).matches(&name("")));
    }

    /// Check that several patterns don't affect each other, and that no patterns match no name.
    #[test]
    fn several_patterns_are_independent() {
        let patterns = compiled(&["ab", "*c", "d*", "", "fifteen-letters"]);
        for word in ["ab", "c", "xxc", "d", "dab", "", "fifteen-letters"] {
            assert!(patterns.matches(&name(word)), "{word}");
        }
        for word in ["a", "b", "abx", "cx", "xd", "fifteen-letter", "bfifteen"] {
            assert!(!patterns.matches(&name(word)), "{word}");
        }
        assert!(!NamePatterns::NONE.matches(&name("x")));
        assert!(!NamePatterns::NONE.matches(&name("")));
    }

    /// Check that random patterns match random names exactly as the recursive definition says.
    #[test]
    fn matching_equals_the_definition() {
        fn plain(pattern: &[u8], name: &[u8]) -> bool {
            match pattern.split_first() {
                None => name.is_empty(),
                Some((b'*', rest)) => (0..=name.len()).any(|skip| plain(rest, &name[skip..])),
                Some((letter, rest)) => name.split_first().is_some_and(|(first, left)| {
                    (*letter == b'?' || letter == first) && plain(rest, left)
                }),
            }
        }
        let mut seed = 1_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            let mut word = |letters: &[u8], most: u64| -> Vec<u8> {
                (0..random(most))
                    .map(|_| letters[random(letters.len() as u64) as usize])
                    .collect()
            };
            let (one, other, text) = (word(b"ab*?", 7), word(b"ab*?", 7), word(b"ab", 8));
            let mut patterns = NamePatterns::NONE;
            patterns.add(&one).unwrap();
            patterns.add(&other).unwrap();
            let mut padded = [0; COMM_BYTES];
            padded[..text.len()].copy_from_slice(&text);
            assert_eq!(
                patterns.matches(&padded),
                plain(&one, &text) || plain(&other, &text),
                "{one:?} {other:?} {text:?}"
            );
        }
    }

    /// Check that an invalid pattern is refused, and leaves the other patterns unchanged.
    #[test]
    fn invalid_patterns_are_refused() {
        let mut patterns = compiled(&["ab"]);
        let before = patterns;
        for (pattern, error) in [
            ("sixteen-letters!", PatternError::TooLong),
            ("[ab", PatternError::Unfinished),
            ("[]", PatternError::Unfinished),
            ("ab\\", PatternError::Unfinished),
        ] {
            assert_eq!(patterns.add(pattern.as_bytes()), Err(error), "{pattern}");
        }
        assert!(patterns == before);
        let mut count = 0;
        let error = loop {
            match patterns.add(b"seven77*") {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((count, error), (7, PatternError::TooMany));
        assert!(patterns.matches(&name("ab")) && patterns.matches(&name("seven77x")));
    }
}
