//! The table of processes. Resident memory is the most that a process had at a time.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use super::table;
use crate::text::{bytes, count, escape};

/// The largest number of processes in the table.
const MAX_PROCESSES: usize = 20;

/// Writes a row for each process.
pub(super) fn write(page: &mut Page<'_, '_>) -> io::Result<()> {
    let metric = page.options.metric;
    let mut processes: Vec<_> = page.input.profile.processes.iter().collect();
    processes.sort_by_key(|process| std::cmp::Reverse(metric.of(&process.totals)));
    let is_partial = page.input.profile.info.is_partial();
    let mut rows = vec![table::row([
        "PID",
        "COMMAND",
        "LIVE",
        "BLOCKS",
        "LEFT AT EXIT",
        "PEAK",
        "RESIDENT",
        "ALLOCATED",
        "ALLOCATIONS",
        "FREES OF OTHERS",
        "FAILED",
        "",
    ])];
    for process in processes.iter().take(MAX_PROCESSES) {
        let totals = &process.totals;
        rows.push(table::row([
            match process.merged {
                0 => process.pid.to_string(),
                _ => "-".to_owned(),
            },
            escape(&process.command).into_owned(),
            bytes(totals.live_bytes),
            count(totals.live_allocations),
            bytes(totals.left_bytes),
            bytes(totals.peak_live_bytes),
            match process.memory.peak_resident {
                0 => "-".to_owned(),
                most => bytes(most),
            },
            bytes(totals.allocated_bytes),
            count(totals.allocations),
            if is_partial {
                "-".to_owned()
            } else {
                count(process.untracked_frees)
            },
            count(process.failed_allocations),
            match (process.merged, process.ended) {
                (0, false) => String::new(),
                (0, true) => "ended".to_owned(),
                (many, _) => format!("{} ended", count(many)),
            },
        ]));
    }
    writeln!(page.out, "{}\n", page.style.bold("Processes"))?;
    table::write(page.out, &rows, &[1, 11], page.style)?;
    if processes.len() > MAX_PROCESSES {
        let rest = count((processes.len() - MAX_PROCESSES) as u64);
        writeln!(page.out, "  and {rest} more")?;
    }
    writeln!(page.out)
}
