//! Tests of the formats of other programs, on the small profile with hostile names.

use super::sample::{EVIL, profile, symbols};
use super::{assert_printable, snapshot, text};
use crate::output::{Export, ExportFormat, Format, Metric, OutputError, ReportInput};
use crate::profile::{Profile, Symbols};

fn export(format: ExportFormat, metric: Metric) -> Format {
    Format::Export(Export {
        format,
        metric,
        is_compressed: false,
    })
}

/// The sample, with the sites of one process.
fn of_one_process() -> Profile {
    let mut profile = profile();
    let first = profile.sites[0].process;
    profile.sites.retain(|site| site.process == first);
    profile
}

/// Check the text of each format that is short enough to be read by people, and that none has characters that a terminal acts on.
#[test]
fn formats_are_stable() {
    let (profile, symbols) = (of_one_process(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    for format in ExportFormat::ALL {
        let found = text(&export(format, Metric::TotalBytes), &input);
        assert_printable(&found);
        assert!(!found.contains(EVIL), "{format:?}");
        match format {
            ExportFormat::Folded
            | ExportFormat::HeapText
            | ExportFormat::Jeheap
            | ExportFormat::Csv => snapshot(&format!("export.{}", format.name()), &found),
            _ => {}
        }
    }
}

/// Check that heaptrack's file, which holds one process, is refused for several, with the way to choose one.
#[test]
fn heaptrack_holds_one_process() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let format = export(ExportFormat::Heaptrack, Metric::TotalBytes);
    let error = format.write(&input, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, OutputError::SeveralProcesses(_)));
    assert!(error.to_string().contains("--filter pid="), "{error}");
}

/// Check that a profile of impossibly many blocks is refused by the format that has a line for each.
#[test]
fn heaptrack_has_a_line_for_each_block() {
    let (mut profile, symbols) = (of_one_process(), symbols());
    profile.sites[0].totals.allocations = u64::MAX;
    let input = ReportInput::new(&profile, &symbols);
    let format = export(ExportFormat::Heaptrack, Metric::TotalBytes);
    let error = format.write(&input, &mut Vec::new()).unwrap_err();
    assert!(
        matches!(error, OutputError::TooManyBlocks { .. }),
        "{error}"
    );
}

/// Check that a profile without allocations is written where the format can hold it, and is an error elsewhere.
#[test]
fn empty_profiles_are_errors_where_nothing_can_be_shown() {
    let mut profile = profile();
    profile.sites.clear();
    let symbols = Symbols::default();
    let input = ReportInput::new(&profile, &symbols);
    for format in ExportFormat::ALL {
        let written = export(format, Metric::LiveBytes).write(&input, &mut Vec::new());
        let is_shown = matches!(
            format,
            ExportFormat::Folded | ExportFormat::Speedscope | ExportFormat::Firefox
        );
        assert_eq!(written.is_err(), is_shown, "{format:?}");
    }
}
