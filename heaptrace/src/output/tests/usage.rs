//! Reports of how sites use their blocks.

use super::sample::{profile, symbols};
use super::{assert_printable, snapshot, text};
use crate::join::histogram::bucket_of;
use crate::join::{Bucket, Family, Kind, Rounding, RoundingClass, SiteId, Tally, Usage};
use crate::output::report_input::ReportInput;
use crate::output::{Format, ReportOptions};
use crate::profile::Profile;

fn tally(count: u64, bytes: u64, error: u64) -> Tally {
    Tally {
        count,
        bytes,
        count_error: error,
        bytes_error: error * 10,
    }
}

fn buckets<const N: usize>(entries: [(u64, u64, u64); N], error: u64) -> Vec<Bucket> {
    let bucket = |(at, count, bytes)| Bucket {
        index: bucket_of(at),
        blocks: tally(count, bytes, error),
    };
    entries.map(bucket).to_vec()
}

/// A profile of which the first site is used in all ways, the second is mapped memory, and the third is of an older file.
fn used(error: u64) -> Profile {
    let mut profile = profile();
    for (id, site) in (0..).map(SiteId).zip(&mut profile.sites) {
        site.slot = id;
        site.totals.live_bytes = 1000 - u64::from(id.0);
    }
    profile.sites[1].kind = Kind::Mapped;
    let many = (0..40).map(|at| Bucket {
        index: 4 * at + 20,
        blocks: tally(1 << (at / 2), 24 << (at / 2), error),
    });
    let rounding = |family| Rounding {
        family,
        bytes: 1234,
        error,
        unfreed: 56,
        // The first allocator has more classes than are shown.
        classes: (1..=if family == Family::Glibc { 13 } else { 1 })
            .map(|n| RoundingClass {
                from: 64 * n - 24,
                to: if n < 13 { 64 * n - 24 } else { 1 << 20 },
                blocks: n,
                requested: 60 * n,
                bytes: 10 * n,
                error,
                unfreed: 4,
            })
            .collect(),
    };
    let full = Usage {
        sizes: buckets(
            [(24, 2, 48), (1000, 20, 20_500), (1 << 20, 1, 1 << 20)],
            error,
        ),
        lifetimes: many.collect(),
        untimed: tally(3, 72, error),
        freed_elsewhere: tally(7, 168, error),
        reallocations: tally(9, 900, error),
        chains: tally(2, 200, error),
        moves: tally(4, 5000, error),
        rounding: vec![rounding(Family::Glibc), rounding(Family::Jemalloc)],
    };
    let mapped = Usage {
        sizes: buckets([(4096, 3, 12_288)], 0),
        ..Usage::default()
    };
    profile
        .usages
        .extend([(SiteId(0), full), (SiteId(1), mapped)]);
    profile
}

/// Check that histograms are bars in few lines of the width, that what is missing is named, and that estimates have errors.
#[test]
fn histograms_of_sites() {
    let symbols = symbols();
    let mut found = String::new();
    for (error, width) in [(0, 80), (5, 120)] {
        let profile = used(error);
        let options = ReportOptions {
            histogram: true,
            top: 3,
            width: Some(width),
            ..ReportOptions::default()
        };
        let report = text(
            &Format::Text(options),
            &ReportInput::new(&profile, &symbols),
        );
        assert_printable(&report);
        let bars = report.lines().filter(|line| line.contains('█'));
        let widest = bars.map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width, "{report}");
        found.push_str(&report);
        found.push_str("----\n");
    }
    snapshot("histogram.txt", &found);
}

/// Check that JSON has all buckets of each site, errors only of a sample, and nothing where nothing was recorded.
#[test]
fn histograms_in_json() {
    let (profile, symbols) = (used(0), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let json: serde_json::Value = serde_json::from_str(&text(&Format::Json, &input)).unwrap();
    let sites = json["sites"].as_array().unwrap();
    let full = sites.iter().find(|it| !it["rounding"].is_null()).unwrap();
    let range = serde_json::json!({"from": 896, "to": 1023, "count": 20, "bytes": 20_500});
    assert_eq!(full["sizes"][1], range);
    assert_eq!(full["lifetimes"].as_array().unwrap().len(), 40);
    assert_eq!(full["lifetime_quantiles"]["p99"]["to"], (5_u64 << 43) - 1);
    assert_eq!(full["freed_by_other_threads"]["count"], 7);
    assert_eq!(full["realloc_moves"]["bytes"], 5000);
    assert_eq!(full["rounding"][1]["allocator"], "jemalloc");
    assert_eq!(full["rounding"][1]["unfreed_bytes"], 56);
    let class = serde_json::json!({
        "usable_from": 40, "usable_to": 40, "blocks": 1, "requested_bytes": 60, "bytes": 10, "unfreed_bytes": 4
    });
    assert_eq!(full["rounding"][1]["classes"], serde_json::json!([class]));
    let mapped = sites.iter().find(|it| it["kind"] == "mmap").unwrap();
    assert_eq!(mapped["sizes"][0]["count"], 3);
    assert!(mapped["lifetimes"].is_null());
    assert!(sites.iter().any(|it| it["sizes"].is_null()));
}
