//! The line of the keys at the foot of the live view, and the help above it.
//!
//! Stage: view. Must not know what the keys do.

use super::keys::HELP;
use super::line::{Line, Tone};
use super::names::shortened;

/// What the foot shows.
#[derive(Clone, Debug, Default)]
pub struct Foot {
    /// What the table is sorted by.
    pub sorted: &'static str,
    /// What the table is grouped by.
    pub grouped: &'static str,
    /// Whether the table is frozen.
    pub is_paused: bool,
    /// Whether the help is shown.
    pub is_help: bool,
}

/// Puts the keys into the last of `rows` lines, and the help over those before, if it is shown.
pub(super) fn add(lines: &mut Vec<Line>, foot: &Foot, width: usize, rows: usize) {
    let room = rows.saturating_sub(1);
    lines.resize(room, Line::default());
    if foot.is_help {
        cover(lines, width);
    }
    lines.push(keys(foot, width));
}

/// The line of the keys.
fn keys(foot: &Foot, width: usize) -> Line {
    let (sorted, grouped) = (foot.sorted, foot.grouped);
    let pause = if foot.is_paused { "go on" } else { "pause" };
    let long = format!("q quit   s sort: {sorted}   b by: {grouped}   p {pause}   ? help");
    let short = format!("q s b:{grouped} p:{pause} ?");
    let paused = if foot.is_paused { "PAUSED   " } else { "" };
    let [long, short] = [long, short].map(|words| format!("{paused}{words}"));
    let words = if long.chars().count() <= width {
        long
    } else {
        shortened(&short, width)
    };
    let tone = if foot.is_paused {
        Tone::Strong
    } else {
        Tone::Faint
    };
    Line::new(tone, words)
}

/// Puts the help over the last lines.
fn cover(lines: &mut [Line], width: usize) {
    let help = HELP.map(|(keys, words)| format!("  {keys:<8}{words}"));
    let rule = "─".repeat(width);
    let all = [rule.as_str(), ""].into_iter();
    let all = all.chain(help.iter().map(String::as_str)).chain([""]);
    let all: Vec<&str> = all.collect();
    let first = lines.len().saturating_sub(all.len());
    for (line, words) in lines.iter_mut().skip(first).zip(all) {
        *line = shortened(words, width).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(foot: &Foot, width: usize, rows: usize) -> Vec<String> {
        let mut lines = vec![Line::from("head".to_owned()); 30];
        add(&mut lines, foot, width, rows);
        lines.into_iter().map(|line| line.text).collect()
    }

    /// Check that the keys are in the last line, with what they change, and that nothing is wider or higher than the
    /// terminal.
    #[test]
    fn keys_are_in_the_last_line() {
        let foot = Foot {
            sorted: "live bytes",
            grouped: "site",
            ..Foot::default()
        };
        let lines = added(&foot, 80, 24);
        assert_eq!(lines[22], "head");
        assert_eq!(
            lines[23],
            "q quit   s sort: live bytes   b by: site   p pause   ? help"
        );
        let paused = Foot {
            is_paused: true,
            ..foot
        };
        assert!(added(&paused, 80, 24)[23].starts_with("PAUSED   q quit"));
        for is_help in [false, true] {
            let foot = Foot {
                is_help,
                ..paused.clone()
            };
            for (width, rows) in [(1, 1), (12, 3), (40, 8), (300, 60)] {
                let lines = added(&foot, width, rows);
                assert_eq!(lines.len(), rows);
                assert!(lines.iter().all(|it| it.chars().count() <= width));
            }
        }
    }

    /// Check that the help names every key of the last line, and leaves the head visible.
    #[test]
    fn help_covers_the_rows() {
        let foot = Foot {
            is_help: true,
            ..Foot::default()
        };
        let lines = added(&foot, 80, 24);
        assert_eq!(lines[..4], ["head"; 4]);
        for key in ["  q ", "  s ", "  b ", "  p ", "  ? "] {
            assert!(lines.iter().any(|it| it.starts_with(key)), "{key}");
        }
    }
}
