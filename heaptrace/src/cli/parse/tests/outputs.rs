//! Tests of parsing the command lines that write files for other programs.

use std::path::PathBuf;
use std::time::Duration;

use super::{complaint, parsed};
use crate::cli::{Action, Moment};
use crate::output::{DiffFormat, ExportFormat, Label, Metric, TimelineFormat, WantedMark};

/// Check that a difference has two files with their moments, and a usual file where it is no text.
#[test]
fn differences_are_read() {
    let line =
        "heaptrace diff a b --old-at 10s --by function --format flamegraph --filter process=x";
    let Action::Diff {
        old,
        new,
        ranking,
        format,
        output,
        ..
    } = parsed(line).unwrap().action
    else {
        panic!("no difference");
    };
    assert_eq!(
        (old.at, new.at),
        (Some(Moment::AfterBegin(Duration::from_secs(10))), None)
    );
    assert_eq!(
        (old.filters.expressions.len(), new.filters.expressions.len()),
        (1, 1)
    );
    assert_eq!(
        (ranking.by, format),
        (Some(Label::Function), DiffFormat::Flamegraph)
    );
    assert_eq!(output, PathBuf::from("heaptrace.diff.svg"));
    assert!(complaint("heaptrace diff a").contains("<NEW>"));
}

/// Check that both sides of a difference are restricted to what was allocated since a mark, whose peak is not known.
#[test]
fn differences_since_a_mark_are_read() {
    let Action::Diff { old, new, .. } = parsed("heaptrace diff a b --since-mark last")
        .unwrap()
        .action
    else {
        panic!("no difference");
    };
    let last = Some(WantedMark::Last);
    assert_eq!((old.since_mark, new.since_mark), (last, last));
    let error = complaint("heaptrace diff a b --since-mark 1 --metric peak-bytes");
    assert!(error.contains("not known"), "{error}");
}

/// Check that an export has a format, a usual file for it, and a metric only where the format has one.
#[test]
fn exports_are_read() {
    let Action::Export {
        output,
        force,
        format,
        metric,
        ..
    } = parsed("heaptrace export --format folded --metric peak-bytes -o x --force")
        .unwrap()
        .action
    else {
        panic!("no export");
    };
    assert_eq!((output, force), (Some(PathBuf::from("x")), true));
    assert_eq!(
        (format, metric),
        (ExportFormat::Folded, Some(Metric::PeakBytes))
    );
    assert!(complaint("heaptrace export").contains("--format"));
    assert!(complaint("heaptrace export --format pdf").contains("speedscope"));
    let words = complaint("heaptrace export --format csv --metric peak-bytes");
    assert!(words.contains("other formats have all numbers"), "{words}");
}

/// Check that a range is read for every command that shows a data file, also with negative times and times of day, and that it excludes a
/// single moment.
#[test]
fn ranges_are_read() {
    for command in [
        "report",
        "leaks",
        "flamegraph",
        "pprof",
        "export --format csv",
    ] {
        let line = format!("heaptrace {command} --from -90s --to 14:30");
        let (Action::Report { input, .. }
        | Action::Leaks { input, .. }
        | Action::Flamegraph { input, .. }
        | Action::Pprof { input, .. }
        | Action::Export { input, .. }) = parsed(&line).unwrap().action
        else {
            panic!("{command} is another action");
        };
        let from = Moment::BeforeEnd(Duration::from_secs(90));
        let to = Moment::TimeOfDay(14 * 3_600 + 30 * 60);
        assert_eq!((input.from, input.at), (Some(from), Some(to)), "{command}");
    }
    let error = complaint("heaptrace report --at 5s --from 1s");
    assert!(error.contains("cannot be used with"), "{error}");
    assert!(complaint("heaptrace report --to 24:00").contains("time of day"));
}

/// Check that a timeline goes to standard output, and a picture to a file of its own, and that it follows what snapshots know.
#[test]
fn timelines_are_read() {
    let read = |line: &str| match parsed(line).unwrap().action {
        Action::Timeline {
            input,
            ranking,
            format,
            output,
            ..
        } => (input, ranking, format, output),
        other => panic!("{line}: {other:?}"),
    };
    let (input, ranking, format, output) = read("heaptrace timeline --from -5m");
    assert_eq!(input.file, PathBuf::from("heaptrace.data"));
    assert_eq!(
        input.from,
        Some(Moment::BeforeEnd(Duration::from_secs(300)))
    );
    assert_eq!(
        (ranking.by, ranking.metric),
        (Some(Label::Stack), Some(Metric::LiveBytes))
    );
    assert_eq!((format, output), (TimelineFormat::Text, PathBuf::from("-")));
    let (_, ranking, _, output) = read("heaptrace timeline x --by module --top 3 --format svg");
    assert_eq!((ranking.by, ranking.top), (Some(Label::Module), Some(3)));
    assert_eq!(output, PathBuf::from("heaptrace.timeline.svg"));
    let error = complaint("heaptrace timeline --metric peak-bytes");
    assert!(error.contains("total-allocations"), "{error}");
}
