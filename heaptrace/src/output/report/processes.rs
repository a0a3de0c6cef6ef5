//! The table of processes. Resident memory is the most that a process had at a time.
//!
//! Stage: output.

use std::io;

use super::page::Page;
use super::table;
use crate::join::Process;
use crate::output::ends;
use crate::text::{bytes, count, duration, escape};

/// The largest number of processes in the table.
const MAX_PROCESSES: usize = 20;

/// What else there is to say of a process.
fn remarks(process: &Process, run_ns: u64) -> String {
    let ended = match (process.merged, process.ended) {
        (0, false) => None,
        (0, true) => Some(match process.end {
            Some(end) => format!("ended ({})", ends::word(end.cause)),
            None => "ended".to_owned(),
        }),
        (many, _) => Some(format!("{} ended", count(many))),
    };
    let traced = process.traced.map(|traced| {
        let time = traced
            .to_ns
            .unwrap_or(run_ns)
            .saturating_sub(traced.from_ns);
        let time = duration(time);
        match traced.age_ns {
            0 => format!("traced for {time}"),
            age => format!("traced for {time}, after {}", duration(age)),
        }
    });
    ended
        .into_iter()
        .chain(traced)
        .collect::<Vec<_>>()
        .join(", ")
}

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
            remarks(process, page.input.profile.duration_ns),
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
