//! The house style, as far as a program can check it.

use std::fs;

use anyhow::{Result, ensure};
use heaptrace_tests::{Source, rust_sources, workspace};

/// The sources of all crates of the project, the kernel program's among them, and the tests.
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

/// Check that every source file opens with what it is for.
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

/// Check that no source file has grown beyond what one noun needs.
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

/// Check that files are made in one place alone, where a stranger can't choose what is overwritten.
#[test]
fn files_are_made_in_one_place() -> Result<()> {
    // The folder of kept tables has its own rules: nothing in it is believed.
    const MAKERS: [&str; 2] = ["create/", "unwind/cache.rs"];
    const WAYS: [&str; 7] = [
        "File::create",
        ".create(true)",
        ".create_new(",
        "fs::write(",
        "fs::rename(",
        "create_dir",
        "O_CREAT",
    ];
    let mut found = Vec::new();
    for source in rust_sources("heaptrace/src")? {
        let name = source.path.display().to_string();
        if MAKERS.iter().any(|it| name.starts_with(it)) || name.contains("tests") {
            continue;
        }
        let code = source.text.split("#[cfg(test)]\nmod tests {").next();
        for (at, line) in code.unwrap_or_default().lines().enumerate() {
            if WAYS.iter().any(|way| line.contains(way)) {
                found.push(format!("{name}:{}", at + 1));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
    Ok(())
}
