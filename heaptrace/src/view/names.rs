//! Names of functions, made to fit a line.
//!
//! Stage: view. Knows nothing of what else is on the line.

use crate::output;

/// Most characters of a function's name where the width has no limit.
pub(super) const LONGEST_NAME: usize = 120;
/// Characters below which a shortened name tells nothing: then fewer are shown.
const SHORTEST_NAME: usize = 14;
const ARROW: &str = " ← ";

/// Names with arrows between, each shortened to its share where they don't fit, or the innermost ones
/// only where the shares are too small to tell anything.
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

/// How many characters each name may have.
fn shares(names: &[String], room: Option<usize>) -> Vec<usize> {
    let mut shares = vec![LONGEST_NAME; names.len()];
    let Some(room) = room else {
        return shares;
    };
    let arrows = ARROW.chars().count() * names.len().saturating_sub(1);
    let mut left = room.saturating_sub(arrows);
    // The shortest first: what one does not need, the longer ones may have.
    let mut by_length: Vec<usize> = (0..names.len()).collect();
    by_length.sort_by_key(|&index| names[index].chars().count());
    for (done, &index) in by_length.iter().enumerate() {
        let share = (left / (names.len() - done)).min(LONGEST_NAME);
        shares[index] = share;
        left -= names[index].chars().count().min(share);
    }
    shares
}

/// At most `width` characters of a text; an ellipsis stands for what was cut off.
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
