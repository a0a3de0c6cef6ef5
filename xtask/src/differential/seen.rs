//! What heaptrace says: the parts of its JSON report that are compared.
//!
//! Part of differential. It knows the documented format alone.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::claims::Counts;

#[derive(Deserialize)]
pub(super) struct Report {
    end: Option<String>,
    pub(super) quality: Quality,
    pub(super) sites: Vec<Site>,
}

#[derive(Deserialize)]
pub(super) struct Quality {
    pub(super) lost: BTreeMap<String, u64>,
    pub(super) failed_allocations: u64,
    pub(super) unprobed: Vec<serde_json::Value>,
    noted: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
pub(super) struct Site {
    pub(super) pid: u32,
    totals: Totals,
    pub(super) stack: Vec<Frame>,
    stack_end: String,
    #[serde(default)]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Totals {
    allocations: u64,
    allocated_bytes: u64,
    frees: u64,
    freed_bytes: u64,
    live_allocations: u64,
    live_bytes: u64,
    #[serde(default)]
    left_at_exit_allocations: u64,
    #[serde(default)]
    left_at_exit_bytes: u64,
}

#[derive(Deserialize)]
pub(super) struct Frame {
    pub(super) function: Option<String>,
    pub(super) module: Option<String>,
    pub(super) address: String,
}

impl Report {
    pub(super) fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("the report is not as documented")
    }

    /// Whether the recording was finished.
    pub(super) fn is_whole(&self) -> bool {
        self.end.as_deref().is_none_or(|end| end == "orderly")
    }

    /// The sum of all losses.
    pub(super) fn lost(&self) -> u64 {
        self.quality.lost.values().sum()
    }

    /// The number of stacks that were cut because of their time: a file had been mapped just before, which the documents
    /// name as a limit, or another thread was changing the mappings.
    pub(super) fn cut_by_time(&self) -> u64 {
        let reasons = ["stack_broken_no_table_yet", "stack_broken_mappings_busy"];
        let noted = reasons.iter().filter_map(|it| self.quality.noted.get(*it));
        noted.sum()
    }

    /// The sites of blocks, without memory that was mapped.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Site> {
        // Blocks have no kind of memory; mappings are named by the function that maps.
        let is_block = |site: &&Site| site.kind.is_none();
        self.sites.iter().filter(is_block)
    }
}

impl Site {
    pub(super) fn counts(&self) -> Counts {
        Counts {
            allocations: self.totals.allocations,
            bytes: self.totals.allocated_bytes,
            frees: self.totals.frees,
            freed_bytes: self.totals.freed_bytes,
        }
    }

    /// The blocks and bytes that are live, or were so when their process ended.
    pub(super) fn remaining(&self) -> (u64, u64) {
        let totals = &self.totals;
        (
            totals.live_allocations + totals.left_at_exit_allocations,
            totals.live_bytes + totals.left_at_exit_bytes,
        )
    }

    /// Whether the stack was followed to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.stack_end == "complete"
    }

    /// The names of the generated functions on the stack, the innermost first.
    pub(super) fn chain(&self) -> Vec<&str> {
        let frames = self.stack.iter().filter_map(|it| it.function.as_deref());
        frames.filter_map(generated).collect()
    }

    /// The stack in one line.
    pub(super) fn line(&self) -> String {
        let frame = |it: &Frame| match (&it.function, &it.module) {
            (Some(function), _) => function.clone(),
            (None, Some(module)) => format!("{} in {module}", it.address),
            (None, None) => it.address.clone(),
        };
        let frames: Vec<String> = self.stack.iter().map(frame).collect();
        let mut line = frames.join(" ← ");
        if let Some((most, _)) = line.char_indices().nth(900) {
            line.truncate(most);
        }
        format!("{line} ({})", self.stack_end)
    }
}

/// The name of the generated function in a function's name, such as `s017_` in `program::s017_`.
fn generated(function: &str) -> Option<&str> {
    let mut words = function.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.find(|word| {
        let bytes = word.as_bytes();
        matches!(bytes, [b's' | b'f', digits @ .., b'_'] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sites of mapped memory, which name the function that maps, are no sites of blocks.
    #[test]
    fn mappings_are_no_blocks() {
        let site = |kind: &str| {
            format!(
                r#"{{"pid":1,"stack":[],"stack_end":"complete","kind":{kind},"totals":{{"allocations":1,
                "allocated_bytes":1,"frees":0,"freed_bytes":0,"live_allocations":1,"live_bytes":1}}}}"#
            )
        };
        let sites = [site("null"), site(r#""mmap""#)].join(",");
        let quality = r#"{"lost":{},"failed_allocations":0,"unprobed":[],"noted":{}}"#;
        let report = format!(r#"{{"quality":{quality},"sites":[{sites}]}}"#);
        assert_eq!(Report::parse(&report).unwrap().blocks().count(), 1);
    }

    /// Check that generated functions are known by their names, in each language and in clones that a compiler made, and
    /// that no others are.
    #[test]
    fn generated_functions_have_their_names() {
        assert_eq!(generated("s017_"), Some("s017_"));
        assert_eq!(
            generated("program::f003_::h0123456789abcdef"),
            Some("f003_")
        );
        assert_eq!(generated("s017_.constprop.0"), Some("s017_"));
        for other in ["h017_", "main", "s_", "f_x_", "std::f64::s0_a"] {
            assert_eq!(generated(other), None, "{other}");
        }
    }
}
