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
        "  live          127.0 KiB  (",
        " in about 130 blocks",
        "97.7 KiB (76.9 %, ",
        "19.5 KiB (15.4 %, ",
        " to ",
        "1,313 samples",
    ] {
        assert!(report.contains(part), "{part} is not in:\n{report}");
    }
    let options = ReportOptions {
        details: true,
        ..ReportOptions::default()
    };
    let details = text(&Format::Text(options), &input);
    for part in [
        "frees of others     unknown",
        "failed allocations  at least 2",
    ] {
        assert!(details.contains(part), "{part} is not in:\n{details}");
    }
    let json: serde_json::Value = serde_json::from_str(&text(&Format::Json, &input)).unwrap();
    assert_eq!(json["mode"]["kind"], "sampled");
    assert_eq!(json["mode"]["mean_bytes"], 512 << 10);
    assert_eq!(json["totals"]["live_bytes_error"], 10_240);
    assert_eq!(json["totals"]["allocations_error"], 7);
    // An interval for each error, of totals, sites and processes.
    for totals in [
        &json["totals"],
        &json["sites"][0]["totals"],
        &json["processes"][0]["totals"],
    ] {
        let fields = totals.as_object().unwrap();
        let names = fields.keys().filter_map(|name| name.strip_suffix("_error"));
        let names: Vec<_> = names.collect();
        assert_eq!(names.len(), 10);
        for name in names {
            let number = |name: String| fields[&name].as_u64().unwrap();
            let (low, high) = (
                number(format!("{name}_low")),
                number(format!("{name}_high")),
            );
            let value = number(name.to_owned());
            // An ended process has nothing live, and a running one left nothing, for certain.
            let is_certain = value == 0 && name.starts_with('l');
            assert!(
                low <= value && value <= high,
                "{name}: {low} {value} {high}"
            );
            assert!(value < high || is_certain, "{name}: {low} {value} {high}");
        }
    }
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
