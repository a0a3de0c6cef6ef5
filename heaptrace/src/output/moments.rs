//! The moments of a run that something happened at by itself: a process crashed or was killed, or live memory exceeded a limit.
//!
//! Stage: output. Escapes the names of processes and control groups.

use super::ends;
use super::filter::Filter;
use super::interval::Intervals;
use super::report_input::ReportInput;
use crate::join::Exceeded;
use crate::profile::Profile;
use crate::text;

/// A moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Nanoseconds since the run began.
    pub(super) at_ns: u64,
    /// What happened; safe to print.
    pub(super) words: String,
}

/// The moments of the time of a profile, in their order.
pub(super) fn moments(input: &ReportInput<'_>) -> Vec<Moment> {
    let profile = input.profile;
    let intervals = Intervals::of(profile);
    // What a part of the allocations holds is not what the process held.
    let is_part = input.since.is_some() || input.filters.iter().any(Filter::selects_sites);
    let ends = ends::sudden(profile)
        .into_iter()
        .filter(|_| !is_part)
        .filter_map(|(_, process)| {
            let words = ends::sentence(process, &profile.info, &intervals)?;
            let at_ns = process.end?.at_ns;
            Some(Moment { at_ns, words })
        });
    let exceeded = exceeded(input).into_iter().map(|it| Moment {
        at_ns: it.at_ns,
        words: sentence(it, profile),
    });
    let mut all: Vec<_> = ends.chain(exceeded).collect();
    all.sort_by_key(|it| it.at_ns);
    all
}

/// The limits that were exceeded in the time of a profile; none if it has only a part of the allocations.
pub(super) fn exceeded<'a>(input: &ReportInput<'a>) -> Vec<&'a Exceeded> {
    let profile = input.profile;
    if !input.filters.is_empty() {
        return Vec::new();
    }
    let (from, to) = profile
        .range
        .map_or((0, u64::MAX), |range| (range.from_ns, range.to_ns));
    let all = profile.exceeded.iter();
    all.filter(|it| (from..=to).contains(&it.at_ns)).collect()
}

/// That a limit was exceeded, and when, without a full stop.
pub(super) fn sentence(exceeded: &Exceeded, profile: &Profile) -> String {
    let whose = if exceeded.is_group {
        "the control group "
    } else {
        ""
    };
    let about = match profile.info.mode.is_sampled() {
        true => "about ",
        false => "",
    };
    let mark = match exceeded.mark {
        0 => String::new(),
        number => format!(" (mark {number})"),
    };
    format!(
        "live memory of {whose}{} exceeded {}, {} into the run: {about}{}{mark}",
        text::escape(&exceeded.name),
        text::bytes(exceeded.limit_bytes),
        text::duration(exceeded.at_ns),
        text::bytes(exceeded.live_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{End, EndCause, Process};
    use crate::profile::{Mode, Range, RunInfo, Symbols};

    fn profile() -> Profile {
        let mut profile = Profile::new(RunInfo::exact("--all"));
        let exceeded = |mark, at_ns, is_group| Exceeded {
            mark,
            at_ns,
            limit_bytes: 1 << 20,
            live_bytes: 3 << 19,
            name: "a\x1bb (1)".to_owned(),
            is_group,
        };
        profile.exceeded = vec![
            exceeded(1, 2_000_000_000, false),
            exceeded(0, 4_000_000_000, true),
        ];
        profile.processes.push(Process {
            pid: 7,
            command: "worker".to_owned(),
            end: Some(End {
                cause: EndCause::OutOfMemory,
                at_ns: 3_000_000_000,
            }),
            ..Process::default()
        });
        profile
    }

    fn words(profile: &Profile) -> Vec<String> {
        let symbols = Symbols::default();
        let input = ReportInput::new(profile, &symbols);
        moments(&input).into_iter().map(|it| it.words).collect()
    }

    /// Check that ends and limits are told in the order of time, safe to print, and only those of a part of the run.
    #[test]
    fn moments_are_told_in_order() {
        let mut profile = profile();
        let told = words(&profile);
        assert_eq!(
            told[0],
            "live memory of a\\x1bb (1) exceeded 1.0 MiB, 2.00 s into the run: 1.5 MiB (mark 1)"
        );
        assert!(told[1].starts_with("worker (7) was killed by the kernel"));
        assert_eq!(
            told[2],
            "live memory of the control group a\\x1bb (1) exceeded 1.0 MiB, 4.00 s into the run: 1.5 MiB"
        );
        profile.info.mode = Mode::Sampled { mean_bytes: 512 };
        assert!(words(&profile)[0].contains(": about 1.5 MiB"));
        profile.range = Some(Range {
            from_ns: 2_500_000_000,
            to_ns: 3_500_000_000,
            peak_is_least: false,
        });
        assert_eq!(words(&profile).len(), 1);
    }
}
