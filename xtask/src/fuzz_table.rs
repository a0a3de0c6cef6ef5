//! The table of docs/fuzzing.md: the results of each boundary.
//!
//! Part of `cargo xtask fuzz`. A row is replaced when its boundary runs again.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::workspace;

const HEAD: &str = "| Boundary | Inputs | Not refused at once | Different outcomes | Most memory | Slowest | Took | Seed |";
const RULE: &str = "|--|--:|--:|--:|--:|--:|--:|--:|";

/// The results of one boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    name: String,
    seed: u64,
    inputs: u64,
    taken: u64,
    variety: u64,
    bytes: u64,
    micros: u64,
    seconds: u64,
}

impl Row {
    /// Reads the test's output: a name and numbers.
    pub fn parse(line: &str, took: Duration) -> Result<Self> {
        let values = values(line);
        let value = |name: &str| {
            let value = values.get(name).copied();
            value.with_context(|| format!("no {name} in {line:?}"))
        };
        Ok(Self {
            name: line.split_whitespace().next().unwrap_or("").to_owned(),
            seed: value("seed")?,
            inputs: value("inputs")?,
            taken: value("taken")?,
            variety: value("variety")?,
            bytes: value("bytes")?,
            micros: value("micros")?,
            seconds: took.as_secs(),
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.taken * 100 / self.inputs.max(1);
        write!(
            f,
            "| {} | {} | {percent} % | {} | {} KiB | {:.1} ms | {} s | {} |",
            self.name,
            grouped(self.inputs),
            grouped(self.variety),
            grouped(self.bytes.div_ceil(1024)),
            self.micros as f64 / 1000.0,
            grouped(self.seconds),
            self.seed
        )
    }
}

/// Writes a row to the page; it replaces the row of the same boundary.
pub fn write(row: &Row) -> Result<()> {
    let path = workspace::root().join("docs/fuzzing.md");
    let context = || format!("cannot read {}", path.display());
    let text = fs::read_to_string(&path).with_context(context)?;
    let new = replaced(&text, row).with_context(|| format!("no table in {}", path.display()))?;
    fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))
}

fn replaced(page: &str, row: &Row) -> Option<String> {
    let (before, rest) = page.split_once(RULE)?;
    let before = before.strip_suffix('\n')?.strip_suffix(HEAD)?;
    let rest = rest.strip_prefix('\n')?;
    let end = rest
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.len() + 1)
        .sum::<usize>()
        .min(rest.len());
    let (rows, behind) = rest.split_at(end);
    let own = format!("| {} |", row.name);
    let mut rows: Vec<String> = rows
        .lines()
        .filter(|line| !line.starts_with(&own))
        .map(str::to_owned)
        .collect();
    rows.push(row.to_string());
    rows.sort();
    Some(format!(
        "{before}{HEAD}\n{RULE}\n{}\n{behind}",
        rows.join("\n")
    ))
}

/// A number with separators between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The `name=value` words of a line.
fn values(line: &str) -> BTreeMap<&str, u64> {
    line.split_whitespace()
        .filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            Some((name, value.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a row is inserted in order, replaces an older row of its boundary, and leaves the rest of
    /// the page unchanged.
    #[test]
    fn rows_are_replaced() {
        let line = "maps seed=7 inputs=1234567 taken=617283 variety=90 bytes=2048 micros=1500";
        let row = Row::parse(line, Duration::from_secs(61)).unwrap();
        assert_eq!(
            row.to_string(),
            "| maps | 1,234,567 | 49 % | 90 | 2 KiB | 1.5 ms | 61 s | 7 |"
        );
        let page = format!("# Head\n\n{HEAD}\n{RULE}\n\nRest.\n");
        let one = replaced(&page, &row).unwrap();
        let other = Row {
            name: "cgroup".to_owned(),
            ..row.clone()
        };
        let newer = Row { seed: 8, ..row };
        let all = replaced(&replaced(&one, &other).unwrap(), &newer).unwrap();
        assert_eq!(all.matches("| maps |").count(), 1);
        assert!(all.contains("| 61 s | 8 |\n\nRest.\n"), "{all}");
        assert!(all.find("| cgroup |") < all.find("| maps |"));
        assert_eq!(replaced("no table", &other), None);
        assert!(Row::parse("maps seed=7", Duration::ZERO).is_err());
    }
}
