//! The flow of data, left to right, as a test: a stage of heaptrace imports only earlier ones.
//!
//! `session.rs`, the crate's roots and `cli/` see all stages; every other file beside the stages is a
//! base that all may use, and imports none.

use std::path::Path;

use anyhow::{Result, ensure};
use heaptrace_tests::{Source, rust_sources};

const STAGES: [&str; 9] = [
    "probes",
    "doctor",
    "unwind",
    "events",
    "join",
    "profile",
    "symbolize",
    "output",
    "view",
];

/// Files and folders that may see every stage.
const ABOVE: [&str; 6] = [
    "cli",
    "fuzz.rs",
    "jobs.rs",
    "lib.rs",
    "main.rs",
    "session.rs",
];

/// Folders that are no stage: all may use them, and they import none.
const BASES: [&str; 5] = ["create", "kernel", "proc", "reader", "sandbox"];

/// Where a file stands.
#[derive(Debug, PartialEq)]
enum Place {
    Base,
    Stage(usize),
    Above,
}

fn stage(name: &str) -> Option<usize> {
    STAGES.iter().position(|stage| *stage == name)
}

fn place(path: &Path) -> Result<Place> {
    let first = path.iter().next().and_then(|part| part.to_str());
    let first = first.unwrap_or_default();
    if ABOVE.contains(&first) || ABOVE.contains(&format!("{first}.rs").as_str()) {
        return Ok(Place::Above);
    }
    if let Some(stage) = stage(first.trim_end_matches(".rs")) {
        return Ok(Place::Stage(stage));
    }
    ensure!(
        first.ends_with(".rs") || BASES.contains(&first),
        "src/{first}/ is no stage that this test knows: give it a place in the flow"
    );
    Ok(Place::Base)
}

/// The modules at the crate's root that a source text names, by `crate::` or by climbing with
/// `super::` out of its stage. Comments don't count.
fn imports(source: &Source) -> Vec<String> {
    let code: String = source
        .text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = Vec::new();
    let depth = source.path.components().count();
    let is_module_root = source.path.ends_with("mod.rs");
    let climb = "super::".repeat(if is_module_root { depth - 1 } else { depth });
    for prefix in ["crate::", climb.as_str()] {
        for (at, _) in code.match_indices(prefix) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || "_:$".contains(letter)) {
                continue;
            }
            let rest = &code[at + prefix.len()..];
            found.extend(first_names(rest));
        }
    }
    found
}

/// The names right behind `crate::`: one, or those at the top level of a group in braces.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect()
    };
    let Some(group) = path.strip_prefix('{') else {
        return vec![name(path)];
    };
    let mut names = vec![name(group)];
    let mut nesting = 0;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => nesting += 1,
            '}' if nesting == 0 => break,
            '}' => nesting -= 1,
            ',' if nesting == 0 => names.push(name(&group[at + 1..])),
            _ => {}
        }
    }
    names
}

fn violations(sources: &[Source]) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    for source in sources {
        let place = place(&source.path)?;
        for import in imports(source) {
            let Some(imported) = stage(&import) else {
                if place != Place::Above && (import == "session" || import == "cli") {
                    violations.push(format!("{} sees {import}", source.path.display()));
                }
                continue;
            };
            let allowed = match place {
                Place::Above => true,
                Place::Base => false,
                Place::Stage(own) => imported <= own,
            };
            if !allowed {
                violations.push(format!("{} imports {import}", source.path.display()));
            }
        }
    }
    Ok(violations)
}

/// Check that no stage of heaptrace imports a later one, and no base module any.
#[test]
fn stages_import_only_earlier_ones() -> Result<()> {
    let sources = rust_sources("heaptrace/src")?;
    ensure!(
        sources.iter().any(|source| source.path.starts_with("join")),
        "no stage was found"
    );
    let violations = violations(&sources)?;
    assert_eq!(violations, Vec::<String>::new());
    Ok(())
}

/// Check that the test above finds what it forbids, in every way of writing it.
#[test]
fn finds_violations() -> Result<()> {
    let source = |path: &str, text: &str| Source {
        path: path.into(),
        text: text.to_owned(),
    };
    let wrong = [
        source("join/mod.rs", "use crate::output::Svg;"),
        source("join/blocks.rs", "use crate::{config::A, view::{B, C}};"),
        source("join/blocks.rs", "fn f() { crate::profile::read() }"),
        source("join/blocks.rs", "use super::super::view::X;"),
        source("join/mod.rs", "use super::view::X;"),
        source("config.rs", "use crate::events::Event;"),
        source("view/mod.rs", "use crate::session::Session;"),
    ];
    for source in &wrong {
        let found = violations(std::slice::from_ref(source))?;
        assert_eq!(found.len(), 1, "{}: {found:?}", source.text);
    }
    let right = [
        source(
            "output/mod.rs",
            "use crate::profile::Profile; use super::join;",
        ),
        source(
            "join/mod.rs",
            "// use crate::output::Svg;\nuse crate::config::RunConfig;",
        ),
        source(
            "join/blocks.rs",
            "use super::view_of; use super::super::join::X;",
        ),
        source("session.rs", "use crate::{probes::A, view::B};"),
        source("cli/record.rs", "use crate::session::run;"),
    ];
    assert_eq!(violations(&right)?, Vec::<String>::new());
    assert!(place(Path::new("extra/mod.rs")).is_err());
    Ok(())
}

/// What only some files may do, by the words that do it: start a program, or open a file that a target chose.
const RESERVED: [(&str, &[&str]); 4] = [
    ("Command::new(", &["probes/launch.rs", "reader/process.rs"]),
    ("map_files", &["open.rs"]),
    ("Mmap::map", &[]),
    (
        "File::open(",
        &[
            // Of `/proc`, `/sys` and the like.
            "join/cgroups.rs",
            "join/command_line.rs",
            "proc/owner.rs",
            "unwind/vdso.rs",
            // Of this user's own.
            "profile/datafile/read.rs",
            "unwind/cache.rs",
        ],
    ),
];

/// Where a file does what only others may, tests and comments apart.
fn trespasses(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let path = source.path.display().to_string();
        if path.contains("tests") || path.contains("fuzz") {
            continue;
        }
        let text = source.text.split("#[cfg(test)]\nmod tests").next();
        let code = text.unwrap_or_default().lines();
        let code: Vec<&str> = code.filter_map(|line| line.split("//").next()).collect();
        for (word, allowed) in RESERVED {
            // A longer name that ends alike is another one.
            let is_it = |line: &&str| {
                let mut uses = line.match_indices(word).map(|(at, _)| &line[..at]);
                uses.any(|before| !before.ends_with(char::is_alphanumeric))
            };
            let uses = code.iter().any(is_it);
            if uses && !allowed.contains(&path.as_str()) {
                found.push(format!("{path} has {word}"));
            }
        }
    }
    found
}

/// Check that programs are started, and files of targets opened, in the places that were made for it alone.
#[test]
fn files_are_opened_in_one_place() -> Result<()> {
    assert_eq!(
        trespasses(&rust_sources("heaptrace/src")?),
        Vec::<String>::new()
    );
    let source = |text: &str| Source {
        path: "join/mod.rs".into(),
        text: text.to_owned(),
    };
    for text in [
        "fn f() { Command::new(\"ld.so\"); }",
        "let file = File::open(path)?;",
        "format!(\"/proc/{pid}/map_files/{at}\")",
    ] {
        assert_eq!(trespasses(&[source(text)]).len(), 1, "{text}");
    }
    Ok(())
}
