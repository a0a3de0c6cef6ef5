//! How processes ended, in words.
//!
//! Stage: output. Escapes the names of processes.

use super::interval::Intervals;
use super::metric::Metric;
use super::report_input::process_label;
use crate::join::{EndCause, Process};
use crate::profile::{Profile, RunInfo};
use crate::text;

/// The signals that end a process, by their numbers on x86-64 and on 64-bit ARM.
const SIGNALS: [(u32, &str); 25] = [
    (1, "HUP"),
    (2, "INT"),
    (3, "QUIT"),
    (4, "ILL"),
    (5, "TRAP"),
    (6, "ABRT"),
    (7, "BUS"),
    (8, "FPE"),
    (9, "KILL"),
    (10, "USR1"),
    (11, "SEGV"),
    (12, "USR2"),
    (13, "PIPE"),
    (14, "ALRM"),
    (15, "TERM"),
    (16, "STKFLT"),
    (24, "XCPU"),
    (25, "XFSZ"),
    (26, "VTALRM"),
    (27, "PROF"),
    (29, "IO"),
    (30, "PWR"),
    (31, "SYS"),
    (34, "RTMIN"),
    (64, "RTMAX"),
];

/// The name of a signal: `SIGSEGV`.
pub(super) fn signal_name(number: u32) -> String {
    match SIGNALS.iter().find(|it| it.0 == number) {
        Some((_, name)) => format!("SIG{name}"),
        None => format!("signal {number}"),
    }
}

/// What ended a process, for a table.
pub(super) fn word(cause: EndCause) -> String {
    match cause {
        EndCause::Exec => "exec".to_owned(),
        EndCause::Exit(status) => format!("exit {status}"),
        EndCause::Signal { number, .. } => signal_name(number.into()),
        EndCause::OutOfMemory => "out of memory".to_owned(),
    }
}

/// The processes that crashed or were killed, with their places in the profile, in the order of time. In a part of a run, those that did
/// so in it.
pub(super) fn sudden(profile: &Profile) -> Vec<(u32, &Process)> {
    let from_ns = profile.range.map_or(0, |range| range.from_ns);
    let mut ended: Vec<_> = (0..)
        .zip(&profile.processes)
        .filter_map(|(id, process)| Some((process.end?, id, process)))
        .filter(|(end, ..)| end.cause.is_sudden() && end.at_ns >= from_ns)
        .collect();
    ended.sort_by_key(|(end, id, _)| (end.at_ns, *id));
    ended
        .into_iter()
        .map(|(_, id, process)| (id, process))
        .collect()
}

/// A sentence for each process that crashed or was killed, without its full stop.
pub fn sudden_ends(profile: &Profile) -> Vec<String> {
    let intervals = Intervals::of(profile);
    sudden(profile)
        .into_iter()
        .filter_map(|(_, process)| sentence(process, &profile.info, &intervals))
        .collect()
}

/// How a process ended suddenly, when, and with how much memory; `None` for other ends.
pub(super) fn sentence(process: &Process, info: &RunInfo, intervals: &Intervals) -> Option<String> {
    let end = process.end.filter(|end| end.cause.is_sudden())?;
    let what = match end.cause {
        EndCause::OutOfMemory => "was killed by the kernel for lack of memory".to_owned(),
        EndCause::Signal { number, has_core } => {
            let verb = match end.cause.is_crash() {
                true => "crashed",
                false => "was killed",
            };
            let core = if has_core { " (core dumped)" } else { "" };
            format!("{verb} by {}{core}", signal_name(number.into()))
        }
        EndCause::Exec | EndCause::Exit(_) => return None,
    };
    let totals = &process.totals;
    let range = intervals
        .of_process(process)
        .around(Metric::LeftBytes, totals)
        .map_or_else(String::new, |it| {
            format!(" ({} to {})", text::bytes(it.low), text::bytes(it.high))
        });
    Some(format!(
        "{} {what} at {} UTC, {} into the run, holding {}{range} in {} blocks",
        process_label(process),
        clock(info.started_unix_ns.saturating_add(end.at_ns)),
        text::duration(end.at_ns),
        text::bytes(totals.left_bytes),
        text::count(totals.left_allocations),
    ))
}

/// The time of the day: `14:03:11`.
fn clock(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{End, Totals};

    fn process(cause: EndCause) -> Process {
        Process {
            pid: 12,
            command: "wor\x1bker".to_owned(),
            ended: true,
            end: Some(End {
                cause,
                at_ns: 12_300_000_000,
            }),
            totals: Totals {
                left_allocations: 20_000,
                left_bytes: 1 << 30,
                ..Totals::default()
            },
            ..Process::default()
        }
    }

    fn told(cause: EndCause) -> Option<String> {
        let mut profile = Profile::new(RunInfo::exact("--all"));
        profile.processes.push(process(cause));
        sudden_ends(&profile).pop()
    }

    /// Check that a sentence says who ended how, when and with what, that names are escaped, and that orderly ends have none.
    #[test]
    fn sudden_ends_are_told() {
        let told_of = |number, has_core| told(EndCause::Signal { number, has_core }).unwrap();
        assert_eq!(
            told(EndCause::OutOfMemory).unwrap(),
            "wor\\x1bker (12) was killed by the kernel for lack of memory at 22:13:32 UTC, 12.3 s into the run, \
             holding 1.0 GiB in 20,000 blocks"
        );
        assert!(told_of(11, true).contains(" crashed by SIGSEGV (core dumped) at "));
        assert!(told_of(6, false).contains(" crashed by SIGABRT at "));
        assert!(told_of(9, false).contains(" was killed by SIGKILL at "));
        let term = EndCause::Signal {
            number: 15,
            has_core: false,
        };
        for cause in [EndCause::Exec, EndCause::Exit(1), term] {
            assert_eq!(told(cause), None);
        }
    }

    /// Check that only the ends in a part of a run are told, in the order of time.
    #[test]
    fn ends_of_a_part_are_told() {
        let mut profile = Profile::new(RunInfo::exact("--all"));
        for (pid, at_ns) in [(1, 30), (2, 10), (3, 20)] {
            let mut process = process(EndCause::OutOfMemory);
            process.pid = pid;
            process.end.as_mut().unwrap().at_ns = at_ns;
            profile.processes.push(process);
        }
        let pids = |profile: &Profile| -> Vec<u32> {
            sudden(profile).iter().map(|(_, it)| it.pid).collect()
        };
        assert_eq!(pids(&profile), [2, 3, 1]);
        profile.range = Some(crate::profile::Range {
            from_ns: 15,
            to_ns: 40,
            peak_is_least: false,
        });
        assert_eq!(pids(&profile), [3, 1]);
    }

    /// Check the words of a table.
    #[test]
    fn every_end_has_a_word() {
        let signal = |number| {
            word(EndCause::Signal {
                number,
                has_core: false,
            })
        };
        assert_eq!(
            [15, 34, 40].map(signal),
            ["SIGTERM", "SIGRTMIN", "signal 40"]
        );
        assert_eq!(word(EndCause::Exit(3)), "exit 3");
        assert_eq!(word(EndCause::OutOfMemory), "out of memory");
    }
}
