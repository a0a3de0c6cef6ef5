//! Tests of the first lines of a report: traced memory beside resident memory, and what is not known for certain.

use super::{sample, text};
use crate::join::{Kind, Memory, Totals};
use crate::output::{Filter, Format, Metric, ReportInput, ReportOptions, select};
use crate::profile::{Mode, Profile};

/// The sample, with one running process that has 1 MiB resident.
fn profile() -> Profile {
    let mut profile = sample::profile();
    profile.processes.truncate(1);
    profile.sites.retain(|site| site.process.0 == 0);
    profile.sites[0].kind = Kind::Mapped;
    profile.processes[0].memory = Memory {
        resident: 1 << 20,
        peak_resident: 2 << 20,
        resident_before: 0,
    };
    profile
}

fn report(profile: &Profile, metric: Metric) -> String {
    let symbols = sample::symbols();
    let options = ReportOptions {
        metric,
        ..ReportOptions::default()
    };
    let text = text(&Format::Text(options), &ReportInput::new(profile, &symbols));
    // Lines are broken between words.
    text.replace("\n               ", " ")
}

/// Check that heap and mapped memory stand beside resident memory, with what they don't explain.
#[test]
fn resident_memory_stands_beside() {
    let mut profile = profile();
    let found = report(&profile, Metric::LiveBytes);
    let part = "memory       heap 19.5 KiB + mapped 97.7 KiB of 1.0 MiB resident; not explained: 906.8 KiB (files, stacks";
    assert!(found.contains(part), "{found}");
    assert!(!found.contains("before "), "{found}");

    profile.processes[0].memory.resident_before = 768 << 10;
    let found = report(&profile, Metric::LiveBytes);
    for part in [
        "(before tracing, files, stacks)",
        "768.0 KiB were resident when tracing began, 75.0 % of",
    ] {
        assert!(found.contains(part), "{part} is not in:\n{found}");
    }

    // Mapped, and hardly written to.
    profile.processes[0].memory.resident = 64 << 10;
    let found = report(&profile, Metric::LiveBytes);
    assert!(
        found.contains("a part was never written to: 64.0 KiB resident"),
        "{found}"
    );

    // A part of the process can't be compared with the whole.
    let filter: Filter = "function=grab".parse().unwrap();
    let symbols = sample::symbols();
    let filters = [filter];
    let part = select(profile, &symbols, &filters);
    let input = ReportInput {
        filters: &filters,
        ..ReportInput::new(&part, &symbols)
    };
    let found = text(&Format::Text(ReportOptions::default()), &input);
    assert!(!found.contains("resident"), "{found}");
}

/// Check that what ended processes left stands apart from what is live, and that their highest live memory stands
/// beside the resident one.
#[test]
fn ended_processes_stand_apart() {
    let mut profile = profile();
    let leave = |totals: &mut Totals| {
        totals.left_allocations = std::mem::take(&mut totals.live_allocations);
        totals.left_bytes = std::mem::take(&mut totals.live_bytes);
    };
    leave(&mut profile.totals);
    profile
        .sites
        .iter_mut()
        .for_each(|site| leave(&mut site.totals));
    profile.processes[0].ended = true;
    profile.processes[0].memory.resident = 0;
    let found = report(&profile, Metric::LeftBytes);
    for part in [
        "  left at exit  127.0 KiB  in 130 blocks",
        "peak memory  at most 118.2 KiB live and 2.0 MiB resident: server (41)",
        "by bytes left at exit",
        "  1. 97.7 KiB (76.9 %)  grab",
        "left at exit 97.7 KiB in 100, allocated",
    ] {
        assert!(found.contains(part), "{part} is not in:\n{found}");
    }
    assert!(!found.contains("  live "), "{found}");
}

/// Check that an estimate of zero has an upper bound, and that memory of a paused process is in the table, with
/// the share of time in which it was probed.
#[test]
fn nothing_is_zero_for_certain() {
    let mut profile = profile();
    profile.info.mode = Mode::Sampled {
        mean_bytes: 512 << 10,
    };
    profile.totals = Totals::default();
    let found = report(&profile, Metric::LiveBytes);
    assert!(found.contains("  live         below "), "{found}");

    let mut profile = self::profile();
    let totals = &mut profile.sites[0].totals;
    totals.uncertain_bytes = std::mem::take(&mut totals.live_bytes);
    totals.uncertain_allocations = std::mem::take(&mut totals.live_allocations);
    profile.processes[0].duty_cycle = Some(crate::join::DutyCycle {
        from_ns: 2_500_000_000,
        unprobed_ns: 7_500_000_000,
        overhead: 1_200,
        reached: 480,
    });
    let found = report(&profile, Metric::LiveBytes);
    for part in [
        "  1. perhaps 97.7 KiB (paused)  grab",
        "probed 25.0 % of the time",
    ] {
        assert!(found.contains(part), "{part} is not in:\n{found}");
    }
}
