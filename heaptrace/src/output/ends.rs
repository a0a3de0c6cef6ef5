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

/// For so long, a live view shows that a process crashed or was killed, and that one failed in another way.
const SUDDEN_SHOWN_NS: u64 = 600_000_000_000;
const FAILURE_SHOWN_NS: u64 = 30_000_000_000;

/// The last end that is worth a line while the run goes on, in words of different lengths, the longest first; nothing if there was none
/// for a while. Crashes and kills come before other failures.
pub fn latest_end(profile: &Profile) -> Vec<String> {
    let age = |process: &Process| match process.end {
        Some(end) => profile.duration_ns.saturating_sub(end.at_ns),
        None => u64::MAX,
    };
    let sudden = sudden(profile);
    let sudden = sudden.into_iter().map(|(_, process)| process);
    let sudden: Vec<_> = sudden.filter(|it| age(it) <= SUDDEN_SHOWN_NS).collect();
    let failed = profile.processes.iter().filter(|it| {
        let cause = it.end.map(|end| end.cause);
        let is_failure = !matches!(cause, None | Some(EndCause::Exec | EndCause::Exit(0)));
        is_failure && age(it) <= FAILURE_SHOWN_NS
    });
    let last = sudden.last().copied();
    let Some(process) = last.or_else(|| failed.min_by_key(|it| age(it))) else {
        return Vec::new();
    };
    let Some(end) = process.end else {
        return Vec::new();
    };
    let others = match sudden.len().saturating_sub(1) {
        0 => String::new(),
        1 => "; another one before".to_owned(),
        many => format!("; {} others before", text::count(many as u64)),
    };
    let label = process_label(process);
    let ago = text::duration(age(process));
    let left = text::bytes(process.totals.left_bytes);
    let what = what(end.cause);
    let short = match end.cause {
        EndCause::OutOfMemory => "killed for lack of memory",
        _ => what.strip_prefix("was ").unwrap_or(&what),
    };
    let held = held(process, &Intervals::of(profile));
    vec![
        format!("{label} {what} {ago} ago, with {held} live{others}"),
        format!("{label} {what} {ago} ago, with {left} live{others}"),
        format!("{label} {short} {ago} ago, {left} live{others}"),
        format!("{label} {short} {ago} ago, {left} live"),
    ]
}

/// What a process did when it ended: `crashed by SIGSEGV (core dumped)`.
fn what(cause: EndCause) -> String {
    match cause {
        EndCause::OutOfMemory => "was killed by the kernel for lack of memory".to_owned(),
        EndCause::Signal { number, has_core } => {
            let verb = match (cause.is_crash(), cause.is_sudden()) {
                (true, _) => "crashed",
                (false, true) => "was killed",
                (false, false) => "was ended",
            };
            let core = if has_core { " (core dumped)" } else { "" };
            format!("{verb} by {}{core}", signal_name(number.into()))
        }
        EndCause::Exit(status) => format!("exited with status {status}"),
        EndCause::Exec => "became another program".to_owned(),
    }
}

/// What a process held when it ended; of a sample with its range.
fn held(process: &Process, intervals: &Intervals) -> String {
    let totals = &process.totals;
    let around = intervals
        .of_process(process)
        .around(Metric::LeftBytes, totals);
    let range = around.map_or_else(String::new, |it| {
        format!(" ({} to {})", text::bytes(it.low), text::bytes(it.high))
    });
    format!("{}{range}", text::bytes(totals.left_bytes))
}

/// How a process ended suddenly, when, and with how much memory; `None` for other ends.
pub(super) fn sentence(process: &Process, info: &RunInfo, intervals: &Intervals) -> Option<String> {
    let end = process.end.filter(|end| end.cause.is_sudden())?;
    Some(
        format!(
            "{} {} at {} UTC, {} into the run, holding {} in {} blocks",
            process_label(process),
            what(end.cause),
            clock(info.started_unix_ns.saturating_add(end.at_ns)),
            text::duration(end.at_ns),
            held(process, intervals),
            text::count(process.totals.left_allocations),
        ) + &killed_at(process),
    )
}

/// The control group that was at its limit: `; control group /a had reached its limit of 1.0 GiB (oom_kill 0 → 1)`.
fn killed_at(process: &Process) -> String {
    let Some(it) = &process.killed_at else {
        return String::new();
    };
    let kills = match it.kills.saturating_sub(it.kills_before) {
        0 => format!("oom_kill {}", text::count(it.kills)),
        _ => format!(
            "oom_kill {} → {}",
            text::count(it.kills_before),
            text::count(it.kills)
        ),
    };
    format!(
        "; control group {} had reached its limit of {} ({kills})",
        text::escape(&it.group),
        text::bytes(it.limit)
    )
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
    use crate::join::{End, KilledAt, Totals};

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
        let mut profile = Profile::new(RunInfo::exact("--all"));
        profile.processes.push(Process {
            killed_at: Some(KilledAt {
                group: "/a\x1b".to_owned(),
                limit: 32 << 20,
                kills_before: 0,
                kills: 1,
            }),
            ..process(EndCause::OutOfMemory)
        });
        let limited = sudden_ends(&profile).remove(0);
        assert!(
            limited.ends_with(
                "blocks; control group /a\\x1b had reached its limit of 32.0 MiB (oom_kill 0 → 1)"
            ),
            "{limited}"
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

    /// Check that a live view is told of the last sudden end with how many there were before, for some time, also in few words, and of other
    /// failures only if there was none.
    #[test]
    fn the_last_end_is_told_for_a_while() {
        let mut profile = Profile::new(RunInfo::exact("--all"));
        let mut add = |cause, at_s: u64| {
            let mut process = process(cause);
            process.end.as_mut().unwrap().at_ns = at_s * 1_000_000_000;
            profile.processes.push(process);
            profile.duration_ns = 100_000_000_000;
            latest_end(&profile)
        };
        assert_eq!(add(EndCause::Exit(0), 99), Vec::<String>::new());
        assert_eq!(add(EndCause::Exit(1), 60), Vec::<String>::new());
        let failed = add(EndCause::Exit(3), 90);
        assert_eq!(
            failed[0],
            "wor\\x1bker (12) exited with status 3 10.0 s ago, with 1.0 GiB live"
        );
        let killed = add(EndCause::OutOfMemory, 88);
        assert_eq!(
            killed[0],
            "wor\\x1bker (12) was killed by the kernel for lack of memory 12.0 s ago, with 1.0 GiB live"
        );
        assert_eq!(
            killed[3],
            "wor\\x1bker (12) killed for lack of memory 12.0 s ago, 1.0 GiB live"
        );
        let number = 11;
        let crash = EndCause::Signal {
            number,
            has_core: false,
        };
        let crashed = add(crash, 89);
        assert!(
            crashed[2].ends_with("crashed by SIGSEGV 11.0 s ago, 1.0 GiB live; another one before"),
            "{crashed:?}"
        );
        profile.duration_ns += SUDDEN_SHOWN_NS;
        assert_eq!(latest_end(&profile), Vec::<String>::new());
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
