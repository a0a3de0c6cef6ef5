//! The documents name only what exists: files, folders, links, and tasks of `cargo xtask`.
//!
//! Readers find their way by these names, and files move.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::workspace;

/// The documents, without those that a measurement writes.
fn documents() -> Result<Vec<(PathBuf, String)>> {
    let mut paths = Vec::new();
    for folder in ["", "docs", "docs/design"] {
        for entry in fs::read_dir(workspace().join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "md") && !path.ends_with("CHANGELOG.md") {
                paths.push(path);
            }
        }
    }
    ensure!(paths.len() > 10, "found only {paths:?}");
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok((path, text))
    };
    paths.into_iter().map(read).collect()
}

/// All files that git knows, from the repository's root.
fn files() -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(workspace())
        .output()
        .context("can't run git")?;
    let files: Vec<String> = String::from_utf8(output.stdout)?
        .lines()
        .filter(|path| workspace().join(path).exists())
        .map(str::to_owned)
        .collect();
    ensure!(files.len() > 100, "git names only {} files", files.len());
    Ok(files)
}

/// The pieces of a text between backticks on one line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.starts_with("    "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Whether a piece reads like a file or folder of the repository.
fn is_path(piece: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/_-.".contains(letter);
    let known = [".rs", ".md", ".toml", ".sh", ".json", ".lock", ".c"];
    let is_folder = piece.ends_with('/') && piece.len() > 1;
    let is_placeholder = |part: &str| !part.is_empty() && part.chars().all(char::is_uppercase);
    piece.chars().all(plain)
        && !piece.starts_with(['/', '.', '-'])
        && (is_folder || known.iter().any(|end| piece.ends_with(end)))
        && !piece.starts_with("target/")
        && !piece.split('/').any(is_placeholder)
}

/// Whether a file or folder of that name is there: from the root, or as the end of a longer path.
fn exists(piece: &str, files: &[String]) -> bool {
    files.iter().any(|file| {
        if piece.ends_with('/') {
            file.starts_with(piece) || file.contains(&format!("/{piece}"))
        } else {
            file == piece || file.ends_with(&format!("/{piece}"))
        }
    })
}

/// The targets of links in a text, without those to elsewhere and without sections. Indented lines are output of programs, in
/// which a function's name can look like a link: `get[abi:cxx11](int)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.starts_with("    "))
        .flat_map(|line| line.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')').map(|(link, _)| link))
        .filter(|link| !link.contains("://"))
        .filter_map(|link| link.split('#').next())
        .filter(|link| !link.is_empty())
}

/// Check that every file and folder that a document names in backticks exists, and every link leads somewhere.
#[test]
fn documents_name_what_exists() -> Result<()> {
    let files = files()?;
    let mut wrong = Vec::new();
    for (path, text) in documents()? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for piece in quoted(&text).filter(|piece| is_path(piece)) {
            if !exists(piece, &files) {
                wrong.push(format!("{name}: `{piece}`"));
            }
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        for link in links(&text).filter(|link| !folder.join(link).exists()) {
            wrong.push(format!("{name}: ({link})"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    Ok(())
}

/// Check that each of `cargo xtask`'s tasks is explained in CONTRIBUTING.md, and each one there exists.
#[test]
fn tasks_are_explained() -> Result<()> {
    let text = fs::read_to_string(workspace().join("CONTRIBUTING.md"))?;
    let main = fs::read_to_string(workspace().join("xtask/src/main.rs"))?;
    let mut explained: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `cargo xtask "))
        .filter_map(|rest| rest.split([' ', '`']).next())
        .collect();
    let mut tasks: Vec<&str> = main
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Task::"))
        .filter_map(|rest| rest.split_once("=> ")?.1.split("::").next())
        .collect();
    explained.sort_unstable();
    tasks.sort_unstable();
    let tasks: Vec<String> = tasks.iter().map(|it| it.replace('_', "-")).collect();
    ensure!(tasks.len() > 10, "found only {tasks:?}");
    assert_eq!(explained, tasks);
    Ok(())
}

/// Check that ARCHITECTURE.md stays an overview: at most 200 lines, and at most 25 terms in its glossary.
#[test]
fn the_overview_stays_short() -> Result<()> {
    let text = fs::read_to_string(workspace().join("ARCHITECTURE.md"))?;
    let (_, glossary) = text.split_once("## Glossary").context("no glossary")?;
    let rows = glossary.lines().filter(|line| line.starts_with("| "));
    let terms = rows.count() - 1;
    assert!(text.lines().count() <= 200 && terms <= 25, "{terms} terms");
    Ok(())
}

/// Check that a missing file, folder or link is found, and that other words in backticks are not taken for files.
#[test]
fn finds_what_does_not_exist() {
    let files = ["heaptrace/src/open.rs".to_owned()];
    for there in ["open.rs", "src/open.rs", "heaptrace/", "src/"] {
        assert!(is_path(there) && exists(there, &files), "{there}");
    }
    for gone in ["pen.rs", "opened.rs", "reader/", "heaptrace/open.rs"] {
        assert!(is_path(gone) && !exists(gone, &files), "{gone}");
    }
    for other in [
        "--all",
        "/proc/PID/maps",
        "heaptrace.data",
        "nice -20",
        "src/*.rs",
        "corpus/NAME/",
    ] {
        assert!(!is_path(other), "{other}");
    }
    let text = "a [b](docs/x.md#y), [c](https://d/e), ![f](g.svg)\n    get[abi](int)";
    assert_eq!(links(text).collect::<Vec<_>>(), ["docs/x.md", "g.svg"]);
}
