//! Tests of the listing of source files.

use super::python_sample::python;
use super::sample::{EVIL, profile, symbols};
use super::{assert_printable, snapshot};
use crate::output::source::{SourceText, source_files, write_source};
use crate::output::{Metric, ReportInput, ReportOptions};

/// The listing of the files that allocate, each with this text.
fn listed(input: &ReportInput<'_>, options: &ReportOptions, text: Option<&str>) -> String {
    let (files, all) = source_files(input, options.metric, options.top);
    let source = SourceText {
        text: text.map(ToOwned::to_owned),
        is_newer: false,
    };
    let files: Vec<_> = files.into_iter().map(|it| (it, source.clone())).collect();
    let mut out = Vec::new();
    write_source(input, options, &files, all, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Check that lines have the memory that they and what they call allocate, with and without the text of the file, whatever the text
/// has, and that the number of files is limited.
#[test]
fn lines_have_their_memory() {
    let (profile, symbols) = (profile(), symbols());
    let sample = python();
    let line = format!("\tcall(\"\\t{}\");", EVIL.replace('\n', " "));
    let text = vec![line; 60].join("\n");
    let mut found = String::new();
    for input in [
        ReportInput::new(&profile, &symbols),
        ReportInput::new(&sample.0, &sample.1),
    ] {
        for text in [Some(text.as_str()), Some("one line"), None] {
            for (details, width, top) in [(true, Some(80), 10), (false, None, 1)] {
                let options = ReportOptions {
                    metric: Metric::LiveBytes,
                    top,
                    details,
                    color: false,
                    width,
                };
                let listed = listed(&input, &options, text);
                let widest = listed.lines().map(|line| line.chars().count()).max();
                assert!(width.is_none_or(|width| widest.unwrap() <= width + 40));
                found.push_str(&listed);
                found.push_str("----\n");
            }
        }
    }
    assert_printable(&found);
    snapshot("source.txt", &found);
}

/// Check that the memory of a file is what its lines allocate themselves, and that no line of it has more than all have.
#[test]
fn files_add_up() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let (files, all) = source_files(&input, Metric::TotalBytes, usize::MAX);
    assert!(all == files.len() && !files.is_empty());
    let whole = profile.totals.allocated_bytes;
    let own: u64 = files.iter().map(|it| it.totals.allocated_bytes).sum();
    assert!(own <= whole);
    for file in &files {
        assert!(file.lines.values().any(|line| line.is_own));
        let lines = file.lines.values();
        assert!(
            lines
                .clone()
                .all(|line| line.totals.allocated_bytes <= whole)
        );
        let most = lines
            .filter(|line| line.is_own)
            .map(|line| line.totals.allocated_bytes);
        assert!(most.sum::<u64>() >= file.totals.allocated_bytes);
    }
}
