//! Tests of processes that were paused for their cost, and of groups without live memory.

use serde_json::Value;

use super::{sample, text};
use crate::join::DutyCycle;
use crate::output::{Format, Grouping, Label, Metric, ReportInput, ReportOptions};
use crate::profile::Profile;

/// The sample, whose first process was paused: nothing of it is live for certain.
fn paused() -> Profile {
    let mut profile = sample::profile();
    profile.processes[0].duty_cycle = Some(DutyCycle {
        from_ns: 2_500_000_000,
        unprobed_ns: 7_500_000_000,
        overhead: 4_000,
        reached: 480,
    });
    let sites = profile.sites.iter_mut().filter(|site| site.process.0 == 0);
    let mut all: Vec<_> = sites.map(|site| &mut site.totals).collect();
    all.push(&mut profile.processes[0].totals);
    for totals in all {
        totals.uncertain_bytes = std::mem::take(&mut totals.live_bytes);
        totals.uncertain_allocations = std::mem::take(&mut totals.live_allocations);
    }
    profile
}

fn written(profile: &Profile, by: Option<Label>, format: &Format) -> String {
    let symbols = sample::symbols();
    let input = ReportInput {
        grouping: by.map(|by| Grouping {
            by,
            metric: Metric::LiveBytes,
            cumulative: by.is_of_stack(),
            top: None,
        }),
        ..ReportInput::new(profile, &symbols)
    };
    text(format, &input)
}

/// The cells of the line that ends with a word.
fn row<'t>(report: &'t str, name: &str) -> Vec<&'t str> {
    let line = report.lines().find(|line| line.ends_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{report}"));
    line.split("  ")
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .collect()
}

/// Check that a process whose live memory is all uncertain is in every grouping, first, with its uncertain bytes
/// and the share of time covered. (Once, a paused process was missing from `--by process`.)
#[test]
fn uncertain_memory_is_in_every_grouping() {
    let profile = paused();
    let options = Format::Text(ReportOptions::default());
    for (by, name, uncertain, covered) in [
        (Label::Process, "server", "117.2 KiB", true),
        (Label::Pid, "server (41)", "117.2 KiB", true),
        (Label::Module, "/usr/bin/server", "117.2 KiB", false),
        (Label::Function, "grab", "97.7 KiB", false),
    ] {
        let report = written(&profile, Some(by), &options);
        let cells = row(&report, name);
        assert!(cells.contains(&uncertain), "{by:?}: {cells:?}\n{report}");
        assert_eq!(cells.contains(&"25.0 %"), covered, "{by:?}: {cells:?}");
        let json: Value =
            serde_json::from_str(&written(&profile, Some(by), &Format::Json)).unwrap();
        let first = &json["groups"][0];
        assert_eq!(first["name"], name, "{by:?}");
        let turns = &first["probed_in_turns"];
        if covered {
            assert_eq!(first["totals"]["uncertain_bytes"], 120_005);
            assert_eq!(turns["probed_ns"], 2_500_000_000_u64);
            assert_eq!(turns["since_ns"], 10_000_000_000_u64);
        } else {
            assert!(turns.is_null());
        }
    }
    let report = written(&profile, None, &options);
    assert!(report.contains("grab"), "{report}");
}

/// Check that JSON has all groups, also those without live bytes, and that text names only those that have some.
#[test]
fn json_has_groups_without_live_bytes() {
    let mut profile = sample::profile();
    for site in profile.sites.iter_mut().filter(|site| site.process.0 == 1) {
        site.totals.live_bytes = 0;
        site.totals.live_allocations = 0;
    }
    let json = written(&profile, Some(Label::Pid), &Format::Json);
    let json: Value = serde_json::from_str(&json).unwrap();
    let names: Vec<_> = json["groups"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 2);
    assert_eq!(names[1]["totals"]["live_bytes"], 0);
    assert_eq!(names[1]["totals"]["allocations"], 10);
    let options = Format::Text(ReportOptions::default());
    let report = written(&profile, Some(Label::Pid), &options);
    assert!(report.contains("Top 1 of 1 processes"), "{report}");
}
