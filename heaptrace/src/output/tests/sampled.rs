//! Tests that each format describes a sampled run: its rate and its errors.

use super::{sample, text};
use crate::join::Errors;
use crate::output::{Format, Metric, ReportInput, ReportOptions, pprof};
use crate::profile::{Mode, Profile};

fn profile() -> Profile {
    let mut profile = sample::profile();
    profile.info.mode = Mode::Sampled {
        mean_bytes: 512 << 10,
    };
    let errors = |live_bytes| Errors {
        allocations: 7,
        allocated_bytes: 11_000,
        live_allocations: 3,
        live_bytes,
        ..Errors::default()
    };
    profile.totals.errors = errors(10_240);
    // The first error is small compared with the live bytes; the second is large.
    profile.sites[0].totals.errors = errors(1_024);
    profile.sites[2].totals.errors = errors(15_000);
    profile
}

/// Check that every format marks a sampled run, with its rate, its errors and sites that are not significant.
#[test]
fn estimates_are_marked() {
    let (profile, symbols) = (profile(), sample::symbols());
    let input = ReportInput::new(&profile, &symbols);
    let report = text(&Format::Text(ReportOptions::default()), &input);
    for part in [
        "(sampled, one in 512.0 KiB, ",
        "127.0 KiB ± 10.0 KiB  in 130 ± 3 allocations",
        "97.7 KiB ± 1.0 KiB (76.9 %)",
        "19.5 KiB ± 14.6 KiB (15.4 %, not significant)",
        "untracked frees     unknown",
        "failed allocations  at least 2",
    ] {
        assert!(report.contains(part), "{part} is not in:\n{report}");
    }
    let json: serde_json::Value = serde_json::from_str(&text(&Format::Json, &input)).unwrap();
    assert_eq!(json["mode"]["kind"], "sampled");
    assert_eq!(json["mode"]["mean_bytes"], 512 << 10);
    assert_eq!(json["totals"]["live_bytes_error"], 10_240);
    assert_eq!(json["totals"]["allocations_error"], 7);
    assert_eq!(json["quality"]["untracked_frees"], serde_json::Value::Null);
    let doubted = json["sites"].as_array().unwrap().iter();
    let doubted = doubted.filter(|site| site["totals"]["live_bytes_significant"] == false);
    assert_eq!(doubted.count(), 1);
    assert_eq!(json["rates"][0]["mean_bytes"], 512 << 10);
    let svg = text(&Format::Flamegraph(Metric::LiveBytes), &input);
    assert!(svg.contains("sampled, one in 512.0 KiB"));
    let pprof = pprof::build(&input);
    assert_eq!(pprof.period, 512 << 10);
    assert!(
        pprof
            .string_table
            .iter()
            .any(|it| it.contains("sampled, one in 512.0 KiB: values are estimates"))
    );
}
