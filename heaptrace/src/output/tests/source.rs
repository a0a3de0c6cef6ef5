//! Tests of the listing of source files.

use super::python_sample::python;
use super::sample::{EVIL, profile, symbols};
use super::{assert_printable, snapshot};
use crate::join::{Function, FunctionId, Language};
use crate::output::source::{
    SourceChoice, SourceFile, SourceFiles, SourceText, source_files, write_source,
    write_source_json,
};
use crate::output::{Metric, ReportInput, ReportOptions};

/// The listing of the files that allocate, each with this text.
fn listed(input: &ReportInput<'_>, options: &ReportOptions, text: Option<&str>) -> String {
    let found = found(input, options.metric, options.top, text, None);
    let mut out = Vec::new();
    write_source(input, options, &found, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The files that allocate, each with this text.
fn found(
    input: &ReportInput<'_>,
    metric: Metric,
    top: usize,
    text: Option<&str>,
    choice: Option<&str>,
) -> SourceFiles {
    let chosen = choice.map(SourceChoice::new);
    let (files, all) = source_files(input, metric, top, chosen.as_ref());
    let source = |file: &SourceFile| SourceText {
        text: text.map(ToOwned::to_owned),
        read_from: file.path.clone(),
        is_newer: false,
    };
    SourceFiles {
        files: files
            .into_iter()
            .map(|it| (it.clone(), source(&it)))
            .collect(),
        all,
        are_chosen: chosen.is_some(),
    }
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
                    histogram: false,
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
    let (files, all) = source_files(&input, Metric::TotalBytes, usize::MAX, None);
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

/// Check that programs get every file and line with its memory and its text, that a file is read by its lines with memory alone, and
/// that the fields and their order are those that are promised.
#[test]
fn lines_for_programs() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let numbers: Vec<String> = (1..=200).map(|it| format!("line {it}\u{1b}")).collect();
    let text = numbers.join("\n");
    let mut files = found(&input, Metric::LiveBytes, 2, Some(&text), None);
    for (file, source) in &mut files.files {
        *source = std::mem::take(source).of_lines(file);
        assert!(source.text.as_ref().unwrap().len() < text.len() / 2);
    }
    files.files[1].1 = SourceText::default();
    let mut out = Vec::new();
    write_source_json(&input, &files, &mut out).unwrap();
    let written = String::from_utf8(out).unwrap();
    assert_printable(&written);
    let value: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(value["schema"], 1);
    let of = |file: usize| (&files.files[file].0, &value["files"][file]);
    let (file, json) = of(0);
    assert_eq!(json["path"], file.path.as_str());
    assert_eq!(json["read_from"], file.path.as_str());
    assert_eq!(json["lines"].as_array().unwrap().len(), file.lines.len());
    for (line, json) in file.lines.iter().zip(json["lines"].as_array().unwrap()) {
        let (number, line) = line;
        assert_eq!(json["line"], *number);
        assert_eq!(json["totals"]["live_bytes"], line.totals.live_bytes);
        assert_eq!(
            json["own"]["live_bytes"] == line.own.live_bytes,
            line.is_own
        );
        assert_eq!(json["text"], format!("line {number}\u{1b}"));
    }
    let (_, json) = of(1);
    assert!(json.get("read_from").is_none() && json["lines"][0].get("text").is_none());
    // Escaping of the text is seen above.
    snapshot(
        "source.json",
        &written.replace(",\"", ",\n\"").replace("},{", "},\n{"),
    );
}

/// Check that files and functions are chosen by name, also those that only call what allocates, and that chosen lines are shown without
/// gaps.
#[test]
fn files_and_functions_are_chosen() {
    let (profile, symbols) = (profile(), symbols());
    let input = ReportInput::new(&profile, &symbols);
    let text = vec!["code"; 200].join("\n");
    let lines = |choice: &str| -> Vec<(String, Vec<u32>)> {
        let found = found(&input, Metric::LiveBytes, 10, None, Some(choice));
        let files = found.files.into_iter();
        files
            .map(|(file, _)| (file.path, file.lines.into_keys().collect()))
            .collect()
    };
    let path = "/home/user/src/server/main.c".to_owned();
    assert_eq!(lines("recurse"), [(path.clone(), vec![50])]);
    assert_eq!(lines("*/main.c"), [(path, vec![5, 50, 99, 120])]);
    assert_eq!(lines("main.c"), lines("*/main.c"));
    assert_eq!(lines("main"), []);
    let options = ReportOptions::default();
    let found = found(&input, Metric::LiveBytes, 10, Some(&text), Some("main.c"));
    let mut out = Vec::new();
    write_source(&input, &options, &found, &mut out).unwrap();
    let listing = String::from_utf8(out).unwrap();
    let shown = listing.lines().filter(|it| it.ends_with("  code")).count();
    assert_eq!(shown, 120, "{listing}");
    assert!(!listing.contains('⋮'));
}

/// Check that files of Java, of which only the name is known, are those of their packages.
#[test]
fn files_of_java_are_in_their_packages() {
    let (mut profile, symbols) = (profile(), symbols());
    for (index, (name, path)) in [
        ("com.acme.Foo.bar", "com/acme/Foo.java"),
        ("com.other.Foo$Inner.<init>", "com/other/Foo.java"),
        ("Foo.main", "Foo.java"),
    ]
    .into_iter()
    .enumerate()
    {
        profile.functions = vec![Function {
            language: Language::Java,
            name: name.to_owned(),
            file: "Foo.java".to_owned(),
        }];
        profile.locations[index].function = Some(FunctionId(0));
        profile.locations[index].address = 7;
        let input = ReportInput::new(&profile, &symbols);
        let (files, _) = source_files(&input, Metric::TotalBytes, 10, None);
        assert!(files.iter().any(|file| file.path == path), "{path}");
    }
}
