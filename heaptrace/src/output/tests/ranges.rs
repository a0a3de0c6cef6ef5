//! Tests of reports of a part of a run.

use super::*;
use crate::output::{Export, ExportFormat};
use crate::profile::Range;

/// Check that each format says which part of the run it shows, and what of that is not certain; and that a format without older blocks
/// refuses it.
#[test]
fn parts_of_a_run_are_named() {
    let (mut profile, symbols) = (profile(), symbols());
    profile.range = Some(Range {
        from_ns: 4_200_000_000,
        to_ns: 12_300_000_000,
        peak_is_least: true,
    });
    let begun = profile.info.started_unix_ns;
    let input = ReportInput::new(&profile, &symbols);
    let said = "only from 4.20 s to 12.3 s of the run (nearest snapshots)";
    let report = text(&Format::Text(ReportOptions::default()), &input);
    assert!(report.contains(said), "{report}");
    assert!(report.contains("higher between"), "{report}");
    assert!(report.contains("of the whole run: "), "{report}");
    let json: serde_json::Value = serde_json::from_slice(&written(&Format::Json, &input)).unwrap();
    let range = serde_json::json!({
        "from_ns": 4_200_000_000_u64, "to_ns": 12_300_000_000_u64, "peak_is_least": true
    });
    assert_eq!(json["range"], range);
    let graph = text(&Format::Flamegraph(Metric::LiveBytes), &input);
    assert!(graph.contains(said));
    let pprof = decoded(&input);
    assert_eq!(pprof.time_nanos as u64, begun + 4_200_000_000);
    let export = Export {
        format: ExportFormat::Heaptrack,
        metric: Metric::LiveBytes,
        is_compressed: false,
    };
    let refused = Format::Export(export).write(&input, &mut Vec::new());
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("leave out --from")
    );

    profile.range = profile.range.map(|range| Range {
        peak_is_least: false,
        ..range
    });
    let input = ReportInput::new(&profile, &symbols);
    let report = text(&Format::Text(ReportOptions::default()), &input);
    assert!(report.contains("peak is that of this time"), "{report}");
}
