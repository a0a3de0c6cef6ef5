//! Tests of what a report says about its own quality, in brief and in detail.

use super::{assert_printable, sample, snapshot, text};
use crate::join::{DutyCycle, Quality};
use crate::output::{Format, ReportInput, ReportOptions};
use crate::profile::Profile;

/// Check that a report with details has every table and every counter, zeros included.
#[test]
fn detailed_report() {
    let (mut profile, symbols) = (sample::profile(), sample::symbols());
    profile.sizes = vec![0, 3, 1_310];
    let options = ReportOptions {
        details: true,
        ..ReportOptions::default()
    };
    let found = text(
        &Format::Text(options),
        &ReportInput::new(&profile, &symbols),
    );
    assert_printable(&found);
    for name in profile
        .quality
        .lost
        .keys()
        .chain(profile.quality.noted.keys())
    {
        assert!(found.contains(name.as_str()), "{name} is not in:\n{found}");
    }
    snapshot("details.txt", &found);
}

/// Check that a report without details tells in words what makes its numbers incomplete, with what to do, and
/// that a good run is told in one line.
#[test]
fn reports_tell_what_is_wrong() {
    let (mut profile, symbols) = (sample::profile(), sample::symbols());
    let report = |profile: &Profile| {
        let input = ReportInput::new(profile, &symbols);
        text(&Format::Text(ReportOptions::default()), &input)
    };
    profile.quality.lost = [("ring_full".to_owned(), 7), ("swept_live".to_owned(), 2)].into();
    profile.quality.noted = [
        ("children_probed_late".to_owned(), 3),
        ("nested_calls".to_owned(), 9),
    ]
    .into();
    profile.processes[0].duty_cycle = Some(DutyCycle {
        from_ns: 2_500_000_000,
        unprobed_ns: 5_000_000_000,
        overhead: 1_200,
        reached: 480,
    });
    let found = report(&profile);
    for part in [
        "lost: 7 allocations are missing, because heaptrace could not read events fast enough; raise",
        "lost: 2 blocks count as freed too early",
        "3 child processes may have been traced",
        "libc.so.6: not traced, so its allocations are missing",
        "libx.so: no room: stacks may end early",
        "/lib/y.so: too slow: could not be read",
        "paused at times: server (41): probed 50.0 % of the time",
        "SOME LOST",
        "77.2 % whole stacks",
        "2 failed allocations",
    ] {
        let flat = found.replace("\n  ", " ");
        assert!(flat.contains(part), "{part} is not in:\n{found}");
    }
    for name in ["swept_live", "ring_full", "nested", "Allocators"] {
        assert!(!found.contains(name), "{name} is in:\n{found}");
    }
    profile.quality = Quality {
        samples: 1_313,
        stacks_complete: 1_313,
        ..Quality::default()
    };
    profile.processes[0].duty_cycle = None;
    let found = report(&profile);
    assert!(!found.contains('!'), "{found}");
    let end: Vec<_> = found.lines().rev().take(2).collect();
    assert!(
        end[1].starts_with("nothing lost, 100.0 % whole stacks, heaptrace used "),
        "{found}"
    );
    assert!(end[0].contains("--details"), "{found}");
}
