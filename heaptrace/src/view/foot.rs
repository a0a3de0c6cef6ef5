//! The line of the keys at the foot of the live view, and the help above it.
//!
//! Stage: view. Must not know what the keys do.

use super::keys::HELP;
use super::line::{Line, Tone};
use super::names::shortened;
use super::table::Table;

/// What the foot shows.
#[derive(Clone, Debug, Default)]
pub struct Foot {
    /// What the table is sorted by.
    pub sorted: &'static str,
    /// What the table is grouped by.
    pub grouped: &'static str,
    /// How many marks there are.
    pub marks: usize,
    /// The part that is shown.
    pub part: Part,
    /// Whether the table is frozen.
    pub is_paused: bool,
    /// Whether the help is shown.
    pub is_help: bool,
    /// What has just happened, in words of different lengths, the longest first; empty if nothing has.
    pub notice: Vec<String>,
}

/// The part of a run that the table shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Everything.
    #[default]
    All,
    /// What was allocated since the last mark.
    New,
    /// Sites that grow.
    Leaks,
}

impl Foot {
    /// What has just happened, in the longest words that fit.
    fn notice_within(&self, width: usize) -> Option<String> {
        let mut words = self.notice.iter();
        let fits = words.find(|it| it.chars().count() <= width);
        let words = fits.or(self.notice.last())?;
        Some(shortened(words, width))
    }
}

/// Puts the keys into the last of `rows` lines, and the help over those before, if it is shown.
pub(super) fn add(lines: &mut Vec<Line>, foot: &Foot, width: usize, rows: usize) {
    let room = rows.saturating_sub(1);
    add_notice(lines, foot, width, room);
    if foot.is_help {
        cover(lines, width);
    }
    lines.push(keys(foot, width));
}

/// Puts what has just happened into the last of `rows` lines, over a row of the table if there is one.
pub(super) fn add_notice(lines: &mut Vec<Line>, foot: &Foot, width: usize, rows: usize) {
    lines.resize(rows, Line::default());
    // The head and a row of the table are more important.
    if rows > Table::LEAST_HEAD_LINES + 1
        && let Some(last) = lines.last_mut()
        && let Some(words) = foot.notice_within(width)
    {
        *last = Line::new(Tone::Strong, words);
    }
}

/// The line of the keys.
fn keys(foot: &Foot, width: usize) -> Line {
    let (sorted, grouped) = (foot.sorted, foot.grouped);
    let pause = if foot.is_paused { "go on" } else { "pause" };
    let mark = match foot.marks {
        0 => "m mark".to_owned(),
        marks => format!("m mark ({marks})"),
    };
    let (new, leaks) = match foot.part {
        Part::All => ("n new", "l leaks"),
        Part::New => ("n all", "l leaks"),
        Part::Leaks => ("n new", "l all"),
    };
    // Suspects have an order of their own.
    let order = match foot.part {
        Part::Leaks => String::new(),
        Part::All | Part::New => format!("s sort: {sorted}   b by: {grouped}   "),
    };
    let long = format!("q quit   {order}{mark}   {new}   {leaks}   p {pause}   ? help");
    let medium = long.replace(&mark, "m mark").replace("   ", "  ");
    let order_only = format!("q quit   {order}p {pause}   ? help");
    let short = format!("q s b:{grouped} {new} {leaks} m p:{pause} ?");
    let paused = if foot.is_paused { "PAUSED   " } else { "" };
    let fits = |words: &String| words.chars().count() <= width;
    let mut all = [long, medium, order_only, short]
        .map(|words| format!("{paused}{words}"))
        .into_iter();
    let words = all.find(fits).unwrap_or_else(|| {
        let shortest = format!("{paused}q s b:{grouped} p:{pause} ?");
        shortened(&shortest, width)
    });
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
            "q quit  s sort: live bytes  b by: site  m mark  n new  l leaks  p pause  ? help"
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

    /// Check that what has just happened stands above the keys, in words that fit, and leaves the table alone if there is no room.
    #[test]
    fn notices_are_above_the_keys() {
        let foot = Foot {
            notice: ["in many words", "in few"].map(str::to_owned).to_vec(),
            ..Foot::default()
        };
        for (width, expected) in [(80, "in many words"), (10, "in few"), (4, "in …")] {
            let lines = added(&foot, width, 24);
            assert_eq!(lines[22], expected);
            assert_eq!(lines[21], "head");
        }
        assert!(added(&foot, 80, 6).iter().all(|it| !it.contains("in")));
        let mut lines = Vec::new();
        add_notice(&mut lines, &foot, 80, 12);
        assert_eq!(
            (lines.len(), lines[11].text.as_str()),
            (12, "in many words")
        );
    }

    /// Check that each part of the run names the way back, and that marks are counted.
    #[test]
    fn parts_name_the_way_back() {
        let foot = |part, marks| Foot {
            sorted: "live bytes",
            grouped: "site",
            marks,
            part,
            ..Foot::default()
        };
        let last = |foot: &Foot, width| added(foot, width, 24).pop().unwrap();
        assert_eq!(
            last(&foot(Part::New, 3), 140),
            "q quit   s sort: live bytes   b by: site   m mark (3)   n all   l leaks   p pause   ? help"
        );
        assert_eq!(
            last(&foot(Part::New, 12), 80),
            "q quit  s sort: live bytes  b by: site  m mark  n all  l leaks  p pause  ? help"
        );
        assert_eq!(
            last(&foot(Part::Leaks, 0), 80),
            "q quit   m mark   n new   l all   p pause   ? help"
        );
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
        for key in [
            "  q ", "  s ", "  b ", "  m ", "  n ", "  l ", "  p ", "  ? ",
        ] {
            assert!(lines.iter().any(|it| it.starts_with(key)), "{key}");
        }
    }
}
