//! Checks the house style, as far as a program can check it.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Source, project_texts, rust_sources, workspace};

/// The sources of all crates of the project, with the kernel program and the tests.
fn all_sources() -> Result<Vec<(String, Source)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(workspace())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("heaptrace") && workspace().join(&name).join("src").is_dir() {
            all.push(format!("{name}/src"));
        }
    }
    ensure!(all.len() >= 2, "found only {all:?}");
    all.extend(["xtask/src", "tests/src", "tests/tests"].map(str::to_owned));
    let mut sources = Vec::new();
    for folder in all {
        for source in rust_sources(&folder)? {
            sources.push((format!("{folder}/{}", source.path.display()), source));
        }
    }
    Ok(sources)
}

/// Check that every source file begins with its purpose.
#[test]
fn every_file_says_what_it_is_for() -> Result<()> {
    let silent: Vec<String> = all_sources()?
        .into_iter()
        .filter(|(_, source)| !source.text.starts_with("//! "))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(silent, Vec::<String>::new());
    Ok(())
}

/// Check that every test says what it checks, on the first line of its doc comment.
#[test]
fn every_test_says_what_it_checks() -> Result<()> {
    let mut silent = Vec::new();
    for (name, source) in all_sources()? {
        let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            if !matches!(*line, "#[test]" | "#[tokio::test]") {
                continue;
            }
            let comment = lines[..at]
                .iter()
                .rev()
                .take_while(|line| line.starts_with("///") || line.starts_with("#["))
                .last();
            if !comment.is_some_and(|line| line.starts_with("/// Check ")) {
                silent.push(format!("{name}:{}", at + 1));
            }
        }
    }
    assert_eq!(silent, Vec::<String>::new());
    Ok(())
}

/// Check that no source file has 500 lines or more.
#[test]
fn no_file_is_too_long() -> Result<()> {
    let long: Vec<String> = all_sources()?
        .into_iter()
        .map(|(name, source)| (name, source.text.lines().count()))
        .filter(|(_, lines)| *lines >= 500)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    assert_eq!(long, Vec::<String>::new());
    Ok(())
}

/// The test programs whose `Cargo.toml` entry requires the feature `root`.
fn requiring_root() -> Result<Vec<String>> {
    let manifest = fs::read_to_string(workspace().join("tests/Cargo.toml"))?;
    let entries = manifest.split("[[test]]").skip(1);
    let of_root = entries.filter(|entry| entry.contains("required-features = [\"root\"]"));
    let names = of_root.filter_map(|entry| entry.split('"').nth(1).map(str::to_owned));
    Ok(names.collect())
}

/// Check that every test program that needs root requires the feature `root`. Without it, `cargo test` would run the
/// program without root, and fail.
#[test]
fn tests_that_trace_require_root() -> Result<()> {
    let listed = requiring_root()?;
    ensure!(!listed.is_empty(), "no test program is listed");
    let mut missing = Vec::new();
    for source in rust_sources("tests/tests")? {
        let calls = ["tracing()", "require_root()"];
        let name = source.path.iter().next().unwrap_or_default();
        let name = name.display().to_string();
        let name = name.trim_end_matches(".rs");
        let needs_root = name != "style" && calls.iter().any(|call| source.text.contains(call));
        if needs_root && !listed.iter().any(|it| it == name) {
            missing.push(name.to_owned());
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    Ok(())
}

/// Words that turn things into persons.
const UNWANTED: [&str; 6] = ["whoever", "nobody", "everybody", "somebody", "him", "his"];

/// The name of the user `nobody`, in the forms that it has in code.
const USER_NAME: [&str; 6] = [
    "`nobody`",
    "\"nobody\"",
    "=nobody",
    "--as nobody",
    "--user nobody",
    "-u nobody",
];

/// The unwanted words of a line.
fn unwanted(line: &str) -> Vec<&'static str> {
    let mut line = line.to_owned();
    for name in USER_NAME {
        line = line.replace(name, "");
    }
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let words: Vec<String> = line
        .split(|letter| !is_part(letter))
        // A name in capitals is a constant's.
        .filter(|word| word.chars().skip(1).all(|letter| !letter.is_uppercase()))
        .map(str::to_lowercase)
        .collect();
    let has = |unwanted: &&str| words.iter().any(|word| word == unwanted);
    UNWANTED.into_iter().filter(has).collect()
}

/// Check that no source file and no document has the words that turn things into persons.
#[test]
fn things_are_no_persons() -> Result<()> {
    let texts = project_texts(&["rs", "md"])?;
    ensure!(texts.len() > 100, "found only {} files", texts.len());
    let mut found = Vec::new();
    for source in texts {
        let path = source.path.display().to_string();
        if ["CHANGELOG.md", "tests/tests/style.rs"].contains(&path.as_str()) {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            for word in unwanted(line) {
                found.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// Check that the test above finds the words, and accepts the user's name, constants and longer words.
#[test]
fn unwanted_words_are_found() {
    for (line, expected) in [
        ("// Nobody else reads it.", vec!["nobody"]),
        ("whoever asks; his own", vec!["whoever", "his"]),
        ("runs as the user `nobody`", vec![]),
        ("command.args([\"--as\", \"nobody\"])", vec![]),
        ("sudo heaptrace record --as nobody -- ls", vec![]),
        ("use rights::{NOBODY, open_to_nobody};", vec![]),
        ("this history", vec![]),
    ] {
        assert_eq!(unwanted(line), expected, "{line}");
    }
}

/// Check that every program of a probe calls `hit` before anything else that runs: without it, Linux since 6.13 lets two
/// threads write to one stack.
#[test]
fn every_probe_program_counts_its_hit_first() -> Result<()> {
    let mut programs = 0;
    for source in rust_sources("heaptrace-ebpf/src/hooks")? {
        // Baselines measure the trap alone, and no probe runs the walk.
        if source.path.ends_with("baseline.rs") || source.path.ends_with("walk.rs") {
            continue;
        }
        let (name, text) = (source.path.display(), &source.text);
        for kind in ["#[uprobe]", "#[uretprobe]"] {
            for program in text.split(kind).skip(1) {
                programs += 1;
                let body = program.split_once("-> u32 {").context("no body")?.1;
                let mut lines = body.lines().map(str::trim);
                let first = lines.find(|line| !line.is_empty() && !line.starts_with("const "));
                ensure!(
                    first == Some("hit(&ctx);"),
                    "{name}: a program begins with {first:?}"
                );
            }
        }
    }
    ensure!(programs > 8, "found only {programs} programs");
    Ok(())
}
