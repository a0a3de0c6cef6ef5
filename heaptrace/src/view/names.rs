//! Fits function names into one line.
//!
//! Stage: view. Must not know the rest of the line.

use crate::output::FunctionLabel;

/// The largest number of characters of a name if the width is unlimited.
pub(super) const LONGEST_NAME: usize = 120;
/// The smallest useful length of a caller's name. If there is less space, fewer callers are shown.
const SHORTEST_NAME: usize = 14;
/// The width that the user's function gets in any case, if there is so much.
const LEAST_SHARE: usize = 44;
const ARROW: &str = " ← ";

/// Joins names with arrows, the user's function first. It gets most of the width; its callers follow as far as they fit.
pub(super) fn joined(names: &[FunctionLabel], room: Option<usize>) -> String {
    let Some((user, callers)) = names.split_first() else {
        return String::new();
    };
    let room = room.unwrap_or(usize::MAX);
    let share = match callers {
        [] => room,
        _ => (room / 5 * 3).max(room.min(LEAST_SHARE)),
    };
    let mut line = user.fitted(share.min(LONGEST_NAME));
    for caller in callers {
        let taken = line.chars().count() + ARROW.chars().count();
        let left = room.saturating_sub(taken).min(LONGEST_NAME);
        if left < caller.text.chars().count().min(SHORTEST_NAME) {
            break;
        }
        line.push_str(ARROW);
        line.push_str(&caller.fitted(left));
    }
    line
}

/// Cuts a text to `width` characters, with an ellipsis for the rest.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str, place: Option<&str>) -> FunctionLabel {
        FunctionLabel {
            text: text.to_owned(),
            place: place.map(str::to_owned),
        }
    }

    /// Check that the user's function is kept where there is no room for its callers.
    #[test]
    fn the_users_function_comes_first() {
        let names = ["leak_session(int)", "serve(int)", "main"].map(|name| label(name, None));
        for (room, expected) in [
            (None, "leak_session(int) ← serve(int) ← main"),
            (Some(37), "leak_session(int) ← serve(int) ← main"),
            (Some(32), "leak_session(int) ← serve(int)"),
            (Some(24), "leak_session(int)"),
            (Some(14), "leak_session"),
        ] {
            let line = joined(&names, room);
            assert!(line.starts_with(expected), "{line}");
            assert!(
                room.is_none_or(|room| line.chars().count() <= room),
                "{line}"
            );
        }
        assert_eq!(joined(&[], Some(9)), "");
    }

    /// Check that the files of Python functions are shown as far as there is room.
    #[test]
    fn files_of_python_come_last() {
        let names = [
            ("load", "app.py:7"),
            ("main", "app.py:12"),
            ("<module>", "app.py:40"),
        ];
        let names = names.map(|(name, place)| label(name, Some(place)));
        for (room, expected) in [
            (
                None,
                "load (app.py:7) ← main (app.py:12) ← <module> (app.py:40)",
            ),
            (
                Some(60),
                "load (app.py:7) ← main (app.py:12) ← <module> (app.py:40)",
            ),
            (Some(50), "load (app.py:7) ← main (app.py:12) ← <module>"),
            (Some(30), "load (app.py:7) ← main"),
            (Some(10), "load"),
        ] {
            assert_eq!(joined(&names, room), expected);
        }
    }
}
