//! A timeline as comma-separated values: a row for each time, a column for each group.
//!
//! Stage: output.

use std::io::{self, Write};

use super::course::Timeline;
use crate::output::export::csv::field;
use crate::text::escape;

/// Writes the table. Of a sample, values have their errors in the next column.
pub(super) fn write(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let is_sampled = timeline.is_sampled;
    write!(out, "seconds,total,most")?;
    if is_sampled {
        write!(out, ",total_error,total_low,total_high")?;
    }
    for series in &timeline.groups {
        let name = escape(&series.group.name).into_owned();
        // Stacks of one function have one name.
        let name = match series.group.stack {
            Some(stack) => format!("{name} #{}", stack.0),
            None => name,
        };
        write!(out, ",{}", field(&name))?;
        if is_sampled {
            write!(out, ",{}", field(&format!("{name} error")))?;
        }
    }
    writeln!(out, ",others")?;
    for (at, (time, point)) in timeline.times.iter().zip(&timeline.total).enumerate() {
        write!(
            out,
            "{:.3},{},{}",
            *time as f64 / 1e9,
            point.value,
            point.most
        )?;
        if is_sampled {
            write!(out, ",{},{},{}", point.error, point.lower(), point.upper())?;
        }
        for series in &timeline.groups {
            let counter = series.values.get(at).copied().unwrap_or_default();
            write!(out, ",{}", counter.value)?;
            if is_sampled {
                write!(out, ",{}", counter.error)?;
            }
        }
        writeln!(out, ",{}", timeline.rest.get(at).copied().unwrap_or(0))?;
    }
    Ok(())
}
