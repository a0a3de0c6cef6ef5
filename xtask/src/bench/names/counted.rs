//! Counts the names in a report.
//!
//! Part of bench.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

/// The names of machine code in a report.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Counted {
    /// Distinct addresses.
    pub(super) addresses: u64,
    /// Those with the name of a function.
    pub(super) named: u64,
    /// Those with a source line.
    pub(super) with_line: u64,
    /// The frames of all allocations, inlined ones left out, and those with a name.
    pub(super) frames: u64,
    pub(super) named_frames: u64,
    /// Frames of inlined functions at all addresses.
    pub(super) inlined: u64,
}

impl Counted {
    /// Counts the names in the JSON of a report.
    pub(super) fn of(json: &str) -> Result<Self> {
        let report: Value = serde_json::from_str(json).context("a report is no JSON")?;
        let mut counted = Self::default();
        // By file and address: whether there is a name and a line, and how many inlined functions.
        let mut addresses = BTreeMap::<(&str, &str), (bool, bool, u64)>::new();
        let sites = report["sites"]
            .as_array()
            .context("a report has no sites")?;
        for site in sites {
            let allocations = site["totals"]["allocations"].as_u64().unwrap_or(0);
            let stack = site["stack"].as_array().context("a site has no stack")?;
            let mut inlined = 0;
            let mut has_line = false;
            for frame in stack.iter().filter(|it| it["language"] == "native") {
                has_line |= frame["line"].as_u64() > Some(0);
                if frame["inlined"] == true {
                    inlined += 1;
                    continue;
                }
                let text = |key: &str| frame[key].as_str().unwrap_or_default();
                let is_named = !text("function").is_empty();
                counted.frames += allocations;
                counted.named_frames += allocations * u64::from(is_named);
                let key = (text("module"), text("address"));
                addresses.insert(key, (is_named, has_line, inlined));
                (inlined, has_line) = (0, false);
            }
        }
        for (is_named, has_line, inlined) in addresses.values() {
            counted.addresses += 1;
            counted.named += u64::from(*is_named);
            counted.with_line += u64::from(*has_line);
            counted.inlined += inlined;
        }
        Ok(counted)
    }
}

/// A share, in percent.
pub(super) fn share(part: u64, of: u64) -> String {
    match of {
        0 => "–".to_owned(),
        _ => format!("{:.1} %", 100.0 * part as f64 / of as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that addresses count once, frames as often as something was allocated, and that inlined functions belong to the function
    /// around them.
    #[test]
    fn addresses_count_once() {
        let frame = |function: &str, address: &str, line: u64, inlined: bool| {
            format!(
                r#"{{"function":{function},"module":"/a","address":"{address}","line":{line},"inlined":{inlined},"language":"native"}}"#
            )
        };
        let one = [
            frame(r#""in""#, "0x1", 3, true),
            frame(r#""out""#, "0x1", 5, false),
            frame("null", "0x2", 0, false),
        ];
        let other = [
            frame(r#""f""#, "0x3", 0, false),
            frame("null", "0x2", 0, false),
            r#"{"function":"g","module":"/a.py","address":"0x9","line":7,"inlined":false,"language":"python"}"#.to_owned(),
        ];
        let site = |allocations: u64, stack: &[String]| {
            format!(
                r#"{{"totals":{{"allocations":{allocations}}},"stack":[{}]}}"#,
                stack.join(",")
            )
        };
        let report = format!(r#"{{"sites":[{},{}]}}"#, site(10, &one), site(1, &other));
        let expected = Counted {
            addresses: 3,
            named: 2,
            with_line: 1,
            frames: 22,
            named_frames: 11,
            inlined: 1,
        };
        assert_eq!(Counted::of(&report).unwrap(), expected);
        assert_eq!((share(1, 3), share(0, 0)), ("33.3 %".into(), "–".into()));
    }
}
