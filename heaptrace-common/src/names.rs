//! Which process names are meant: patterns as a shell has them, several at a time.
//!
//! The agent compiles them, the kernel program matches; both sides and the tests run this one file.
//! A pattern is a row of states, one more than the letters that it asks for. Each letter of a name
//! moves every state on that its pattern allows, all in one word: a name takes 16 steps at most,
//! however many patterns there are.

use crate::limits::COMM_BYTES;

/// Patterns, compiled. The states of all of them share the bits of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NamePatterns {
    /// The first state of each pattern.
    pub first: u64,
    /// The last one of each: a name that ends there is meant.
    pub last: u64,
    /// States that any letter leaves as they are: those behind a `*`.
    pub stays: u64,
    /// Per letter, the states that it moves on to the next one.
    pub moves: [u64; 256],
}

/// Why a pattern can't be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// It asks for more letters than a name has.
    TooLong,
    /// All patterns together are too long.
    TooMany,
    /// A `[` without its `]`, or a `\` with nothing behind it.
    Unfinished,
}

impl NamePatterns {
    /// None: no name is meant.
    pub const NONE: Self = Self {
        first: 0,
        last: 0,
        stays: 0,
        moves: [0; 256],
    };

    /// Adds a pattern: `*` is any letters, `?` any one, `[a-c]` one of these, `[!a-c]` none of these, and `\`
    /// takes the meaning from what follows.
    pub fn add(&mut self, pattern: &[u8]) -> Result<(), PatternError> {
        let mut compiled = *self;
        // States are given from the lowest bit on; the last one given is always a last one.
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
            // Zero ends a name and is not one of its letters.
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

    /// Whether a name is meant, which ends at its first zero.
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

/// Marks the letters that the part of a pattern at an index stands for; returns where the next part begins.
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

    /// Check each sign of a pattern by names that it means and names that it doesn't.
    #[test]
    fn means_what_a_shell_means() {
        for (pattern, meant, others) in [
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
            for word in meant.split(' ') {
                assert!(patterns.matches(&name(word)), "{pattern} means {word}");
            }
            for word in others.split(' ') {
                assert!(!patterns.matches(&name(word)), "{pattern} against {word}");
            }
        }
        assert!(compiled(&["*"]).matches(&name("")));
        assert!(!compiled(&["?*"]).matches(&name("")));
    }

    /// Check that several patterns don't run into each other, and that none means nothing.
    #[test]
    fn several_at_a_time() {
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

    /// Check against the plain recursive definition, over random patterns and names.
    #[test]
    fn equals_the_definition() {
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

    /// Check that what can't be compiled is refused, and leaves the patterns as they were.
    #[test]
    fn refuses() {
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
