//! Tests that each format distinguishes mapped memory from allocator blocks.

use super::flamegraph::stacks;
use super::{sample, text};
use crate::join::Kind;
use crate::output::{Filter, Format, Metric, ReportInput, ReportOptions, pprof, select};
use crate::profile::Profile;

fn profile() -> Profile {
    let mut profile = sample::profile();
    profile.sites[0].kind = Kind::Mapped;
    profile
}

/// Check that every format marks the sites of mapped memory, and that the totals include its share.
#[test]
fn mapped_memory_is_marked() {
    let (profile, symbols) = (profile(), sample::symbols());
    let input = ReportInput::new(&profile, &symbols);
    let mapped = profile.sites[0].totals;
    let report = text(&Format::Text(ReportOptions::default()), &input);
    assert!(report.contains("\n    mapped  "), "{report}");
    assert_eq!(report.matches("  mapped (mmap)").count(), 1, "{report}");
    let json: serde_json::Value = serde_json::from_str(&text(&Format::Json, &input)).unwrap();
    assert_eq!(json["mapped"]["live_bytes"], mapped.live_bytes);
    let kinds = json["sites"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.filter_map(|site| site["kind"].as_str()).collect();
    assert_eq!(kinds, ["mmap"]);
    let stacks = stacks(&input, Metric::LiveBytes);
    let is_leaf = |frames: &[String]| frames.last().is_some_and(|it| it == "[mmap]");
    let leaves = stacks.iter().filter(|(frames, _)| is_leaf(frames));
    assert_eq!(leaves.count(), 1);
    let pprof = pprof::build(&input);
    let name = |index: i64| pprof.string_table[index as usize].as_str();
    let labels = pprof.sample.iter().flat_map(|sample| &sample.label);
    let labels = labels.filter(|label| name(label.key) == "kind");
    let labels: Vec<_> = labels.map(|label| name(label.str)).collect();
    assert_eq!(labels, ["mmap"]);
}

/// Check that each kind can be selected alone.
#[test]
fn kinds_can_be_selected() {
    let symbols = sample::symbols();
    let whole = profile();
    let of = |kind: &str| {
        let filter: Filter = format!("kind={kind}").parse().unwrap();
        select(profile(), &symbols, &[filter])
    };
    let (heap, mapped) = (of("heap"), of("mmap"));
    assert_eq!(mapped.sites.len(), 1);
    assert_eq!(mapped.totals.live_bytes, whole.sites[0].totals.live_bytes);
    assert_eq!(heap.sites.len() + 1, whole.sites.len());
    assert!(heap.sites.iter().all(|site| site.kind == Kind::Heap));
}
