//! Checks that no files of a crate import each other in a circle.
//!
//! `heaptrace_tests::circles` says what counts as an import. `layering.rs` checks the order of the stages.

use anyhow::{Result, ensure};
use heaptrace_tests::{Source, circles, rust_sources};

/// The folders of crates, each with the least number of files that it must have.
const CRATES: [(&str, usize); 5] = [
    ("heaptrace/src", 100),
    ("heaptrace-common/src", 5),
    ("heaptrace-ebpf/src", 10),
    ("xtask/src", 20),
    ("tests/src", 10),
];

/// Check that no crate of the project has files that import each other in a circle.
#[test]
fn no_files_import_each_other() -> Result<()> {
    let mut found = Vec::new();
    for (folder, least) in CRATES {
        let sources = rust_sources(folder)?;
        ensure!(sources.len() >= least, "{folder} has too few files");
        let circles = circles(&sources);
        found.extend(circles.iter().map(|circle| format!("{folder}, {circle}")));
    }
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// A crate of these files, each with its text.
fn files(files: &[(&str, &str)]) -> Vec<Source> {
    let source = |&(path, text): &(&str, &str)| Source {
        path: path.into(),
        text: text.to_owned(),
    };
    files.iter().map(source).collect()
}

/// Check that a circle is found in every way of writing an import.
#[test]
fn every_way_of_importing_is_seen() {
    let back = ("a/y.rs", "use super::x::X; pub struct Y;");
    for text in [
        "use super::y::Y; pub struct X;",
        "use crate::a::y::Y; pub struct X;",
        "use crate::{a::{y::{Y, Z}, z}, b}; pub struct X;",
        "use super::{y}; pub struct X; fn f() { y::Y; }",
        "use super::y::{self, Z}; pub struct X(y::Y);",
        "use super::y as other; pub struct X(other::Y);",
        "use super::y::*; pub struct X(Y);",
        "pub struct X; fn f() { crate::a::y::Y }",
        "pub struct X; fn f() { super::y::Y }",
        "pub struct X; fn f() { super::super::a::y::Y }",
        "pub struct X; fn f() { use super::y::Y; }",
        "pub struct X; mod inner { use super::super::y::Y; }",
        "pub struct X; pub use super::y::Y; fn f(y: Y) {}",
        // By what the folder's mod.rs re-exports.
        "use super::Y; pub struct X;",
        "use crate::a::Y; pub struct X;",
        "use super::*; pub struct X(Y);",
    ] {
        let folder = ("a/mod.rs", "mod x; mod y; pub use y::Y;");
        let crate_root = ("lib.rs", "mod a;");
        let found = circles(&files(&[crate_root, folder, ("a/x.rs", text), back]));
        assert_eq!(found.len(), 1, "{text}");
        assert!(found[0].starts_with("circle of 2 files:"), "{}", found[0]);
        assert!(!found[0].contains("mod.rs"), "{}", found[0]);
    }
}

/// Check that a circle is found over several files, between files of different folders, and between a `mod.rs` and a
/// file that uses an item which the `mod.rs` defines.
#[test]
fn long_circles_and_folders_are_seen() {
    let long = files(&[
        ("main.rs", "mod x; mod y; mod z; mod w;"),
        ("x.rs", "use crate::y::Y; pub struct X;"),
        ("y.rs", "use crate::z::Z; pub struct Y;"),
        ("z.rs", "use crate::x::X; pub struct Z;"),
        ("w.rs", "use crate::x::X; pub struct W;"),
    ]);
    let found = circles(&long);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("circle of 3 files:"), "{}", found[0]);
    assert!(found[0].contains("z.rs uses x.rs: crate::x::X"));

    let folders = files(&[
        ("a/mod.rs", "mod x; pub struct A; fn f() { x::f() }"),
        ("a/x.rs", "use super::A; pub fn f() {}"),
        ("b.rs", "mod y; pub fn made() { y::f() }"),
        ("b/y.rs", "use crate::b::made; pub fn f() {}"),
    ]);
    let found = circles(&folders);
    assert_eq!(found.len(), 2, "{found:?}");
}

/// Check that no circle is seen where there is none: re-exports, names of modules, tests, comments, strings, and
/// equal names of other crates.
#[test]
fn other_names_are_no_imports() {
    for text in [
        "use super::Shared; pub struct X;",
        "use super::y; pub struct X;",
        "// use super::y::Y;\n/* super::y::Y */ pub struct X;",
        "pub struct X; const C: &str = \"super::y::Y\";",
        "pub struct X; #[cfg(test)] mod tests { use super::super::y::Y; }",
        "pub struct X; #[cfg(test)] use super::y::Y; ",
        "pub struct X; #[cfg(all(test, unix))]\nfn f() { super::y::Y }",
        "use y::Y; use other::y; pub struct X;",
        "pub use super::y::Y; pub struct X;",
        "pub struct X; fn f(it: It) { it.super_y(); it.y::<X>() }",
        "#[cfg(test)]\nmod only; pub struct X;",
    ] {
        let sources = files(&[
            (
                "a/mod.rs",
                "mod x; mod y; mod z; pub use x::X; pub use y::Y; pub use z::Shared;",
            ),
            ("a/x.rs", text),
            ("a/x/only.rs", "use crate::a::y::Y; use super::X;"),
            ("a/y.rs", "use super::X; pub struct Y;"),
            ("a/z.rs", "pub struct Shared;"),
            ("a/tests.rs", "use super::{X, Y}; pub struct T;"),
            ("a/fuzz.rs", "use super::{X, Y}; pub struct F;"),
        ]);
        assert_eq!(circles(&sources), Vec::<String>::new(), "{text}");
    }
}
