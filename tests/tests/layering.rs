//! Checks the order of heaptrace's stages: a stage imports only earlier stages.
//!
//! `session.rs`, the crate's roots and `cli/` may import every stage. Each other file outside of the stages is a base: all
//! may import it, and it imports no stage. `circles.rs` checks that files don't import each other.

use std::path::Path;

use anyhow::{Result, ensure};
use heaptrace_tests::{Source, rust_sources};

const STAGES: [&str; 10] = [
    "probes",
    "doctor",
    "unwind",
    "events",
    "join",
    "profile",
    "symbolize",
    "types",
    "output",
    "view",
];

/// Files and folders that may import every stage.
const ABOVE: [&str; 6] = [
    "cli",
    "fuzz.rs",
    "jobs.rs",
    "lib.rs",
    "main.rs",
    "session.rs",
];

/// Folders that are no stage: all may import them, and they import no stage.
const BASES: [&str; 12] = [
    "core_file",
    "create",
    "hotspot",
    "jit",
    "kernel",
    "proc",
    "python",
    "reachability",
    "reader",
    "sandbox",
    "sys",
    "v8",
];

/// The layer of a file.
#[derive(Debug, PartialEq)]
enum Layer {
    Base,
    Stage(usize),
    Above,
}

fn stage(name: &str) -> Option<usize> {
    STAGES.iter().position(|stage| *stage == name)
}

fn layer(path: &Path) -> Result<Layer> {
    let first = path.iter().next().and_then(|part| part.to_str());
    let first = first.unwrap_or_default();
    if ABOVE.contains(&first) || ABOVE.contains(&format!("{first}.rs").as_str()) {
        return Ok(Layer::Above);
    }
    if let Some(stage) = stage(first.trim_end_matches(".rs")) {
        return Ok(Layer::Stage(stage));
    }
    ensure!(
        first.ends_with(".rs") || BASES.contains(&first),
        "src/{first}/ is no known stage: add it to the lists at the head of this test"
    );
    Ok(Layer::Base)
}

/// The modules at the crate's root that a source text names, by `crate::` or by `super::` out of its stage. Comments
/// don't count.
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

/// The names after `crate::`: one, or those at the top level of a group in braces.
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
        let layer = layer(&source.path)?;
        for import in imports(source) {
            let Some(imported) = stage(&import) else {
                if layer != Layer::Above && (import == "session" || import == "cli") {
                    violations.push(format!("{} sees {import}", source.path.display()));
                }
                continue;
            };
            let allowed = match layer {
                Layer::Above => true,
                Layer::Base => false,
                Layer::Stage(own) => imported <= own,
            };
            if !allowed {
                violations.push(format!("{} imports {import}", source.path.display()));
            }
        }
    }
    Ok(violations)
}

/// Check that no stage of heaptrace imports a later stage, and no base imports a stage.
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

/// Check that the test above finds forbidden imports in every way of writing them.
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
    assert!(layer(Path::new("extra/mod.rs")).is_err());
    Ok(())
}
