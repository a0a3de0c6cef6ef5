//! The ratios that later runs are compared with, stored beside the page.
//!
//! Part of bench. Each is a ratio of two measurements of one run; smaller is better. Times of different days
//! and machines can't be compared.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::stats::Spread;

/// A ratio that should not grow.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name of the measurement.
    pub name: String,
    /// The ratio's median and range over the rounds.
    pub ratio: Spread,
}

/// Writes the figures as JSON.
pub fn write(figures: &[Figure]) -> Result<String> {
    let all: Vec<Value> = figures
        .iter()
        .map(|figure| {
            let Spread { median, min, max } = figure.ratio;
            json!({ "name": figure.name, "median": median, "min": min, "max": max })
        })
        .collect();
    let mut text = serde_json::to_string_pretty(&all).context("cannot write the figures")?;
    text.push('\n');
    Ok(text)
}

/// Reads stored figures.
pub fn read(text: &str) -> Result<Vec<Figure>> {
    let all: Vec<Value> = serde_json::from_str(text).context("the stored figures are not JSON")?;
    all.iter()
        .map(|value| {
            let number = |name: &str| {
                value[name]
                    .as_f64()
                    .with_context(|| format!("no {name} in {value}"))
            };
            Ok(Figure {
                name: value["name"]
                    .as_str()
                    .with_context(|| format!("no name in {value}"))?
                    .to_owned(),
                ratio: Spread {
                    median: number("median")?,
                    min: number("min")?,
                    max: number("max")?,
                },
            })
        })
        .collect()
}

/// The figures that grew by more than the range of either run, one line for each, and the number of compared
/// figures.
pub fn worse(now: &[Figure], kept: &[Figure]) -> (Vec<String>, usize) {
    let mut lines = Vec::new();
    let mut compared = 0;
    for figure in now {
        let Some(before) = kept.iter().find(|it| it.name == figure.name) else {
            continue;
        };
        compared += 1;
        let noise = (figure.ratio.max - figure.ratio.min).max(before.ratio.max - before.ratio.min);
        let growth = figure.ratio.median - before.ratio.median;
        if growth > noise {
            let mut line = String::new();
            // Writing to a String can't fail.
            let _ = write!(
                line,
                "{}: {:.3} instead of {:.3}, with a noise of {noise:.3}",
                figure.name, figure.ratio.median, before.ratio.median
            );
            lines.push(line);
        }
    }
    (lines, compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, min: f64, median: f64, max: f64) -> Figure {
        Figure {
            name: name.to_owned(),
            ratio: Spread { median, min, max },
        }
    }

    /// Check that figures are read as they were written, and that invalid text is an error.
    #[test]
    fn figures_are_kept() {
        let all = [figure("a, 1", 1.0, 1.5, 2.25), figure("b", 0.0, 0.0, 0.0)];
        assert_eq!(read(&write(&all).unwrap()).unwrap(), all);
        assert!(read("[{}]").is_err());
        assert!(read("x").is_err());
    }

    /// Check that growth within the range of either run is accepted, that larger growth is reported, and that
    /// only figures of both runs are compared.
    #[test]
    fn growth_beyond_the_noise_is_worse() {
        let kept = [
            figure("a", 1.0, 1.1, 1.2),
            figure("b", 1.0, 1.1, 1.2),
            figure("gone", 1.0, 1.0, 1.0),
        ];
        let now = [
            figure("a", 1.25, 1.29, 1.3),
            figure("b", 1.3, 1.31, 1.32),
            figure("new", 9.0, 9.0, 9.0),
        ];
        let (lines, compared) = worse(&now, &kept);
        assert_eq!(compared, 2);
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].starts_with("b: 1.310 instead of 1.100"),
            "{lines:?}"
        );
    }
}
