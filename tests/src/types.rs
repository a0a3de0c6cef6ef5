//! Programs that say, in comments, the type of each block that they allocate, and how a report compares with that.
//!
//! Part of the harness. A comment is `// T: CASE CONDITION=ELEMENT|CONTAINERS ; …`: `CASE` is the function on the stack, a condition is about the
//! size of a block (`*`, `48`, `<100`, `>3000`), and the first that holds counts.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

pub mod variants;

/// What a program says about some of the blocks of a function.
#[derive(Clone, Debug)]
struct Claim {
    condition: String,
    element: String,
}

impl Claim {
    fn is_about(&self, size: u64) -> bool {
        let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
        match self.condition.split_at_checked(1) {
            Some(("*", _)) => true,
            Some(("<", limit)) => size < number(limit),
            Some((">", limit)) => size > number(limit),
            _ => size == number(&self.condition),
        }
    }
}

/// The types that a program's comments name.
#[derive(Clone, Debug, Default)]
pub struct Truths(HashMap<String, Vec<Claim>>);

impl Truths {
    /// Those of a source file.
    pub fn of(source: &str) -> Self {
        let mut truths = HashMap::new();
        for line in source.lines() {
            let Some((_, comment)) = line.split_once("// T: ") else {
                continue;
            };
            let Some((case, claims)) = comment.split_once(' ') else {
                continue;
            };
            let claims = claims.split(" ; ").filter_map(|claim| {
                let (condition, rest) = claim.trim().split_once('=')?;
                let (element, _) = rest.split_once('|')?;
                Some(Claim {
                    condition: condition.to_owned(),
                    element: element.to_owned(),
                })
            });
            truths.insert(case.to_owned(), claims.collect());
        }
        Self(truths)
    }

    /// Compares the sites of a report in JSON.
    pub fn score(&self, report: &Value) -> Score {
        let mut score = Score::default();
        for site in report["sites"].as_array().into_iter().flatten() {
            let names = site["stack"].as_array().into_iter().flatten();
            let mut names = names.filter_map(|it| it["function"].as_str());
            let Some((case, claims)) = names.find_map(|name| {
                let last = name.split(['(', '<']).next()?.rsplit("::").next()?;
                self.0.get_key_value(last)
            }) else {
                continue;
            };
            let size = site["block_sizes"]["smallest"].as_u64();
            let Some(size) = size else { continue };
            let Some(claim) = claims.iter().find(|it| it.is_about(size)) else {
                continue;
            };
            score.sites += 1;
            let found = &site["type"];
            let Some(element) = found["element"].as_str() else {
                score
                    .unknown
                    .push(format!("{case} ({size}): {}", claim.element));
                continue;
            };
            let way = found["way"].as_str().unwrap_or_default().to_owned();
            let of_way = score.ways.entry(way).or_default();
            of_way.answered += 1;
            if is_same(element, &claim.element) {
                of_way.right += 1;
            } else {
                let found = &found["name"];
                score.wrong.push(format!(
                    "{case} ({size}): {element} ({found}) instead of {}",
                    claim.element
                ));
            }
        }
        score
    }
}

/// Whether an element is the one of the comment, which has no spaces and no modules of Rust, or one of those that it has, with `/` between them.
fn is_same(found: &str, claimed: &str) -> bool {
    match claimed {
        "lambda" => found.contains("lambda") || found.contains("$_"),
        "closure" => found.contains("closure"),
        _ => claimed.split('/').any(|it| plain(found) == plain(it)),
    }
}

fn plain(name: &str) -> String {
    // The crate of a fixture in Rust is not in its comments.
    let name = name.replace("rs::", "");
    name.replace(' ', "")
}

/// Answers of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfWay {
    /// Answers.
    pub answered: u64,
    /// Those that are right.
    pub right: u64,
}

/// How far a report is right.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// The sites whose type is known to the program.
    pub sites: u64,
    /// The answers, by the way that they were found.
    pub ways: BTreeMap<String, OfWay>,
    /// What is wrong.
    pub wrong: Vec<String>,
    /// The sites without a type.
    pub unknown: Vec<String>,
}

impl Score {
    /// All answers.
    pub fn all(&self) -> OfWay {
        self.ways.values().fold(OfWay::default(), |sum, it| OfWay {
            answered: sum.answered + it.answered,
            right: sum.right + it.right,
        })
    }

    /// The part of the sites that has the right type, in per cent.
    pub fn recall(&self) -> f64 {
        100.0 * self.all().right as f64 / self.sites.max(1) as f64
    }

    /// Adds another score.
    pub fn add(&mut self, other: Self) {
        self.sites += other.sites;
        for (way, of) in other.ways {
            let own = self.ways.entry(way).or_default();
            own.answered += of.answered;
            own.right += of.right;
        }
        self.wrong.extend(other.wrong);
        self.unknown.extend(other.unknown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a right, a wrong and a missing type are told apart, and that conditions choose by size.
    #[test]
    fn reports_are_compared() {
        let truths = Truths::of(
            "void f() {} // T: f <60=std::pair<const int,A>|x ; *=char|std::string\nint g(); // T: g 8=B|B\nh; // T: h *=C/D|",
        );
        let site = |function: &str, size: u64, found: Value| {
            serde_json::json!({
                "stack": [{"function": "malloc"}, {"function": function}],
                "block_sizes": {"smallest": size, "largest": size},
                "type": found,
            })
        };
        let found = |element: &str| serde_json::json!({"element": element, "way": "frames"});
        let report = serde_json::json!({"sites": [
            site("f(int)", 40, found("std::pair<const int, A>")),
            site("f", 60, found("int")),
            site("g", 8, Value::Null),
            site("g", 9, Value::Null),
            site("h", 8, found("D")),
            site("i", 8, Value::Null),
        ]});
        let score = truths.score(&report);
        assert_eq!(score.sites, 4);
        assert_eq!(
            score.ways["frames"],
            OfWay {
                answered: 3,
                right: 2
            }
        );
        assert_eq!((score.wrong.len(), score.unknown.len()), (1, 1));
    }
}
