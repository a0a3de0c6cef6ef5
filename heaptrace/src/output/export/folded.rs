//! Folded stacks: a line for each stack, with one number, for flame graph tools.
//!
//! Stage: output.

use std::collections::BTreeMap;
use std::io::Write;

use crate::output::error::OutputError;
use crate::output::metric::Metric;
use crate::output::report_input::ReportInput;
use crate::output::stacks::Stacks;

/// Writes the stacks of a metric, the outermost function first: `main;load;read_file 4096`.
pub(super) fn write(
    input: &ReportInput<'_>,
    metric: Metric,
    out: &mut dyn Write,
) -> Result<(), OutputError> {
    let mut stacks = Stacks::new(input);
    let mut values = BTreeMap::<u32, u64>::new();
    for site in &input.profile.sites {
        let value = metric.of(&site.totals);
        if value > 0 {
            let sum = values.entry(stacks.of(site)).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    if values.is_empty() {
        return Err(OutputError::Nothing);
    }
    for (node, value) in values {
        writeln!(out, "{} {value}", stacks.folded(node))?;
    }
    Ok(())
}
