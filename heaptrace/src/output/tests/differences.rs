//! Tests of differences between two profiles.

use super::sample::{profile, symbols, totals};
use super::{assert_printable, snapshot};
use crate::output::{DiffFormat, DiffOptions, Label, Metric, OutputError, ReportInput, Side};
use crate::profile::{Profile, Symbols};

/// The sample and a later one: a stack has grown, one has shrunk, one is new, and one is gone.
fn both() -> [Profile; 2] {
    let (mut old, mut new) = (profile(), profile());
    old.sites[3].totals = totals(0, 0, 0);
    new.sites[0].totals = totals(2_000, 1_000, 300);
    new.sites[1].totals = totals(10, 64, 4);
    new.sites[3].totals = totals(100, 1_000, 7);
    new.sites[4].totals = totals(0, 0, 0);
    // Another process, and another build: addresses and ids say nothing.
    for process in &mut new.processes {
        process.pid += 1000;
    }
    for location in new.locations.iter_mut().filter(|it| it.module.is_some()) {
        location.address += 0x100;
    }
    [old, new]
}

fn written(
    [old, new]: &[Profile; 2],
    symbols: &Symbols,
    format: DiffFormat,
    by: Label,
) -> Result<String, OutputError> {
    let options = DiffOptions {
        metric: Metric::LiveBytes,
        by,
        top: None,
        color: false,
        width: None,
    };
    let side = |name, profile| Side::new(name, ReportInput::new(profile, symbols));
    let (old, new) = (side("old\x1b.data", old), side("new.data", new));
    let mut out = Vec::new();
    crate::output::write_diff(&old, &new, format, &options, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// Check the whole text: stacks are joined by names alone, each has its fate, and hostile names are escaped.
#[test]
fn text_is_stable() {
    let found = written(&both(), &symbols(), DiffFormat::Text, Label::Stack).unwrap();
    assert_printable(&found);
    snapshot("diff.txt", &found);
    let found = written(&both(), &symbols(), DiffFormat::Text, Label::Process).unwrap();
    assert_printable(&found);
    snapshot("diff-process.txt", &found);
}

/// Check that the changes of all rows add up to that of the totals, in the fates' sums, too.
#[test]
fn changes_add_up() {
    for by in [Label::Stack, Label::Function, Label::Module, Label::Pid] {
        let [mut old, mut new] = both();
        for profile in [&mut old, &mut new] {
            let live = profile.sites.iter().map(|site| site.totals.live_bytes);
            profile.totals.live_bytes = live.sum();
        }
        let json = written(&[old, new], &symbols(), DiffFormat::Json, by).unwrap();
        assert_printable(&json);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let sum = |list: &serde_json::Value| -> i64 {
            let list = list.as_array().unwrap().iter();
            list.map(|it| it["change"].as_i64().unwrap()).sum()
        };
        let total = json["total"]["change"].as_i64().unwrap();
        assert_eq!(total, 300_000 - 100_000 + 7_000 - 6 * 64 - 5);
        assert_eq!(
            (sum(&json["rows"]), sum(&json["summary"])),
            (total, total),
            "{by:?}"
        );
    }
}

/// Check that two equal profiles have no difference.
#[test]
fn equal_profiles_have_no_difference() {
    let both = [profile(), profile()];
    let json = written(&both, &symbols(), DiffFormat::Json, Label::Stack).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row["fate"] == "same"),
        "{json}"
    );
}

/// Check that the flame graph has the colors of both directions, and that no markup of a name gets into it.
#[test]
fn the_flame_graph_is_red_and_blue() {
    let svg = written(&both(), &symbols(), DiffFormat::Flamegraph, Label::Stack).unwrap();
    let colors = svg
        .split("fill=\"rgb(")
        .skip(1)
        .filter_map(|it| it.split(')').next());
    let colors: Vec<Vec<u8>> = colors
        .map(|it| it.split(',').map(|part| part.parse().unwrap()).collect())
        .collect();
    assert!(colors.iter().any(|it| it[0] > it[2]), "no red");
    assert!(colors.iter().any(|it| it[0] < it[2]), "no blue");
    assert!(svg.contains("grab") && !svg.contains("<script>alert"));
    let mut empty = both();
    empty[1].sites.clear();
    let error = written(&empty, &symbols(), DiffFormat::Flamegraph, Label::Stack);
    assert!(matches!(error, Err(OutputError::Nothing)));
}
