//! Folded stacks: `outermost;…;innermost value`, the common tongue of flame graph tools.
//!
//! Stage: output.

use std::collections::BTreeMap;

use super::findings::{Findings, kind_name, process_label};
use super::{Metric, OutputError};
use crate::join::Kind;
use crate::text;

/// Stacks from the outermost frame to the innermost, with their values, in the order of their frames:
/// stacks that begin alike stand together, which a sort of whole lines doesn't give.
pub(super) fn stacks(
    findings: &Findings<'_>,
    metric: Metric,
) -> Result<Vec<(Vec<String>, u64)>, OutputError> {
    let several = findings.profile.processes.len() > 1;
    // Of who calls; a stack has no one function that could be its root.
    let root = findings.grouping.map(|grouping| grouping.by);
    let root = root.filter(|label| !label.is_of_stack());
    let mut stacks = BTreeMap::<Vec<String>, u64>::new();
    let mut sum = 0u64;
    for (site, value) in findings.sites_by(metric) {
        let mut frames: Vec<String> = findings
            .stack(site.stack)
            .iter()
            .rev()
            .map(|frame| frame_name(&frame.label()))
            .collect();
        if frames.is_empty() {
            frames.push("[no stack]".to_owned());
        }
        // The caller of mmap must not look like one of malloc.
        if site.kind == Kind::Mapped {
            frames.push(format!("[{}]", kind_name(site.kind)));
        }
        let first = match root {
            Some(label) => Some(match findings.caller(site, label) {
                Some(name) => text::escape(&name).into_owned(),
                None => label.none().to_owned(),
            }),
            None => {
                let process = findings.process(site).filter(|_| several);
                process.map(process_label)
            }
        };
        if let Some(name) = first {
            frames.insert(0, frame_name(&name));
        }
        // Only a crafted file gets there; a drawing of it would be of numbers that are none.
        sum = sum
            .checked_add(value)
            .filter(|sum| i64::try_from(*sum).is_ok())
            .ok_or(OutputError::TooLarge)?;
        *stacks.entry(frames).or_default() += value;
    }
    Ok(stacks.into_iter().collect())
}

/// One line of a folded stack.
pub(super) fn line(frames: &[String], value: u64) -> String {
    let mut line = frames.join(";");
    // A reader takes a number behind a space for a value, and `# ` for a comment.
    if let Some(space) = line.rfind(' ')
        && line[space + 1..]
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        line.replace_range(space..=space, "\u{a0}");
    }
    if line.starts_with("# ") {
        line.replace_range(1..2, "\u{a0}");
    }
    format!("{line} {value}")
}

/// A name without what separates names. Rust's `[u8; 4]` has it.
fn frame_name(name: &str) -> String {
    let name = name.replace(';', ",");
    let name = name.trim();
    if name.is_empty() {
        "[no name]".to_owned()
    } else {
        name.to_owned()
    }
}
