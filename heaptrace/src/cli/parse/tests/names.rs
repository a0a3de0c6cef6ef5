//! Tests of options for names of functions and for source files.

use super::{complaint, parsed};
use crate::cli::{Action, Format};
use crate::output::SourceChoice;

/// Check that source files are those that allocate most or those that a pattern matches, as text or JSON, and that the pattern is not
/// the data file.
#[test]
fn source_files_are_chosen() {
    let source = |line: &str| match parsed(line).unwrap().action {
        Action::Source {
            input,
            format,
            wanted,
            ..
        } => (
            input.file.display().to_string(),
            format,
            wanted.choice,
            wanted.places.len(),
        ),
        other => panic!("{line}: {other:?}"),
    };
    let file = |name: &str| name.to_owned();
    assert_eq!(
        source("heaptrace report --source a.data"),
        (file("a.data"), Format::Text, None, 0)
    );
    let chosen = Some(SourceChoice::new("put*"));
    assert_eq!(
        source(
            "heaptrace report --source=put* --format json --source-path /src --source-path /a=/b"
        ),
        (file("heaptrace.data"), Format::Json, chosen, 2)
    );
    assert!(complaint("heaptrace report --source=").contains("--source"));
    assert!(complaint("heaptrace report --source --by line").contains("--by"));
    assert!(complaint("heaptrace report --source-path /a=").contains("FROM=TO"));
}

/// Check that full names are an option of the live view, reports and flame graphs.
#[test]
fn full_names_are_an_option() {
    let full_names = |line: &str| match parsed(line).unwrap().action {
        Action::Live { full_names, .. } => full_names,
        Action::Report { input, .. }
        | Action::Source { input, .. }
        | Action::Flamegraph { input, .. } => input.full_names,
        other => panic!("{line}: {other:?}"),
    };
    for command in [
        "heaptrace --all",
        "heaptrace report",
        "heaptrace report --source",
        "heaptrace flamegraph",
    ] {
        assert!(!full_names(command));
        assert!(full_names(&format!("{command} --full-names")));
    }
}
