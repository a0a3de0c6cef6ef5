//! The keys of the live view.
//!
//! Stage: view. Turns the bytes that a terminal sends into keys. Must not know what the keys do.

/// A key with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Ends the run.
    Quit,
    /// The next number to sort by.
    Sort,
    /// The one before.
    SortBack,
    /// The next key to group by.
    By,
    /// The one before.
    ByBack,
    /// Makes a mark.
    Mark,
    /// Shows what was allocated since the last mark, or everything again.
    New,
    /// Shows the sites that grow, or everything again.
    Leaks,
    /// Freezes the table, or lets it change again.
    Pause,
    /// Shows the help, or hides it.
    Help,
    /// Hides the help.
    Escape,
    /// Draws the terminal anew.
    Redraw,
    /// Ctrl-Z: stops the process until its shell continues it.
    Suspend,
}

/// What the keys do, for the help.
pub(super) const HELP: [(&str, &str); 10] = [
    ("q", "end the run, with a summary (as Ctrl-C)"),
    ("s  S", "sort by the next number, or by the one before"),
    ("b  B", "group by the next key, or by the one before"),
    (
        "m",
        "make a mark: what is allocated from now on is told apart",
    ),
    (
        "n",
        "show only what was allocated since the last mark, or all",
    ),
    (
        "l",
        "show the sites that grow (leaks, filling caches), or all",
    ),
    ("p", "freeze the table; recording goes on"),
    ("Ctrl-L", "draw the terminal anew"),
    ("Ctrl-Z", "back to the shell; fg continues"),
    ("?", "this help; any key hides it"),
];

/// The keys in the order in which they were pressed. Others, such as arrows, are left out.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    const ESCAPE: u8 = 0x1b;
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        rest = behind;
        let key = match *first {
            b'q' | b'Q' => Key::Quit,
            b's' => Key::Sort,
            b'S' => Key::SortBack,
            b'b' => Key::By,
            b'B' => Key::ByBack,
            b'm' => Key::Mark,
            b'n' => Key::New,
            b'l' => Key::Leaks,
            b'p' | b'P' | b' ' => Key::Pause,
            b'?' | b'h' => Key::Help,
            0x0c => Key::Redraw,
            0x1a => Key::Suspend,
            ESCAPE => match rest {
                // An arrow or a function key: `ESC [ … letter` or `ESC O letter`.
                [b'[' | b'O', sequence @ ..] => {
                    let last = sequence.iter().position(|it| (0x40..=0x7e).contains(it));
                    rest = last
                        .and_then(|at| sequence.get(at + 1..))
                        .unwrap_or_default();
                    continue;
                }
                // A key with Alt.
                [_, behind @ ..] => {
                    rest = behind;
                    continue;
                }
                [] => Key::Escape,
            },
            _ => continue,
        };
        keys.push(key);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that letters are keys, and that letters within the sequences of other keys are none.
    #[test]
    fn bytes_become_keys() {
        assert_eq!(
            keys(b"qs?\x1a"),
            [Key::Quit, Key::Sort, Key::Help, Key::Suspend]
        );
        // Arrow up (its `A` is none of our letters), Alt-q, arrow down in the other mode (`B` is one), Delete.
        assert_eq!(keys(b"\x1b[A\x1bq\x1bOB\x1b[3~b"), [Key::By]);
        assert_eq!(keys(b"mnl"), [Key::Mark, Key::New, Key::Leaks]);
        assert_eq!(keys(b"\x1b[1;5B"), []);
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x1b["), []);
        assert_eq!(keys("xö1\n".as_bytes()), []);
    }
}
