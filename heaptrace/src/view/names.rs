//! Fits function names into one line.
//!
//! Stage: view. Must not know the rest of the line.

use crate::output;

/// The largest number of characters of a name if the width is unlimited.
pub(super) const LONGEST_NAME: usize = 120;
/// The smallest useful length of a shortened name. If there is less space, fewer names are shown.
const SHORTEST_NAME: usize = 14;
const ARROW: &str = " ← ";

/// Joins names with arrows. Names that don't fit are shortened to their share of the width. If the shares are
/// too small to be useful, only the innermost names are shown.
pub(super) fn joined(names: &[String], room: Option<usize>) -> String {
    let mut names = names;
    let mut shares = shares(names, room);
    while let [but_last @ .., _] = names
        && !but_last.is_empty()
        && names
            .iter()
            .zip(&shares)
            .any(|(name, &share)| share < name.chars().count().min(SHORTEST_NAME))
    {
        names = but_last;
        shares = self::shares(names, room);
    }
    let parts: Vec<_> = names
        .iter()
        .zip(shares)
        .map(|(name, share)| output::shorten_function(name, share))
        .collect();
    parts.join(ARROW)
}

/// The number of characters for each name.
fn shares(names: &[String], room: Option<usize>) -> Vec<usize> {
    let mut shares = vec![LONGEST_NAME; names.len()];
    let Some(room) = room else {
        return shares;
    };
    let arrows = ARROW.chars().count() * names.len().saturating_sub(1);
    let mut left = room.saturating_sub(arrows);
    // The shortest name comes first; the longer ones share the space that it leaves.
    let mut by_length: Vec<usize> = (0..names.len()).collect();
    by_length.sort_by_key(|&index| names[index].chars().count());
    for (done, &index) in by_length.iter().enumerate() {
        let share = (left / (names.len() - done)).min(LONGEST_NAME);
        shares[index] = share;
        left -= names[index].chars().count().min(share);
    }
    shares
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
