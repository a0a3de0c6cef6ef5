//! Discovery, on this machine's own files.

use std::path::Path;

use super::ask::{Search, finding};
use super::hooks::MALLOC;
use super::model::Finding;
use super::*;
use crate::jobs::reader_of_tests;
use crate::open;

const QUICK: Search<'static> = Search {
    root: None,
    named: None,
    mappings: false,
};

fn own() -> Found {
    of_process(
        &mut reader_of_tests(),
        std::process::id(),
        LookFor::default(),
        Effort::Thorough,
        |_| false,
    )
    .unwrap()
}

fn look(path: &str) -> Finding {
    let opened = open::named(Path::new(path)).unwrap();
    finding(&mut reader_of_tests(), opened, path.to_owned(), QUICK)
}

/// Check that this machine's own glibc is recognised, with every function of the family, and with
/// functions that share an address at one place.
#[test]
fn reads_the_running_glibc() {
    let found = own();
    let libc = found.allocators.iter().find(|it| it.path.contains("/libc"));
    let libc = libc.expect("no C library in this process");
    assert_eq!(libc.kinds(), ["glibc"]);
    let names = libc.hook_names("glibc");
    for name in MALLOC.iter().flat_map(|(names, _)| *names) {
        // Newer ones of the family.
        if !name.starts_with("free_") {
            assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
        }
    }
    let mut offsets: Vec<_> = libc.places.iter().map(|place| place.offset).collect();
    offsets.dedup();
    assert_eq!(offsets.len(), libc.places.len());
}

/// Check that the C library a command will map is found before it runs.
#[test]
fn finds_the_glibc_of_a_command() {
    let libc = own()
        .allocators
        .into_iter()
        .find(|it| it.path.contains("/libc"));
    let found = of_command(
        &mut reader_of_tests(),
        &["/bin/sh".into()],
        LookFor::default(),
    );
    let id = libc.unwrap().id;
    assert!(found.allocators.iter().any(|it| it.id == id));
}

/// Check that what has no allocator, and what is no ELF file, yields nothing.
#[test]
fn other_files_have_none() {
    assert!(matches!(look("/etc/passwd"), Finding::Nothing));
    let libm = "/lib/x86_64-linux-gnu/libm.so.6";
    if Path::new(libm).exists() {
        assert!(matches!(look(libm), Finding::Nothing));
    }
}
