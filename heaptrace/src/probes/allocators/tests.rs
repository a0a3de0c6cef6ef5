//! Tests of discovery on this machine's own files.

use std::collections::HashSet;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use super::ask::{Search, finding};
use super::hooks::MALLOC;
use super::model::Finding;
use super::*;
use crate::jobs::reader_of_tests;
use crate::open;
use crate::proc::maps;

const QUICK: Search<'static> = Search {
    root: None,
    named: None,
    mappings: false,
};

/// The allocators of this process.
pub(crate) fn of_this_process() -> Found {
    of_process(
        &mut reader_of_tests(),
        std::process::id(),
        LookFor::default(),
        Effort::Thorough,
        &mut HashSet::new(),
    )
    .unwrap()
}

fn inspect(path: &str) -> Finding {
    let opened = open::named(Path::new(path)).unwrap();
    finding(&mut reader_of_tests(), opened, path.to_owned(), QUICK)
}

/// Check that this machine's own glibc is recognized with every function of the family, and that functions with the same
/// address share one entry.
#[test]
fn the_running_glibc_is_recognized() {
    let found = of_this_process();
    let libc = found.allocators.iter().find(|it| it.path.contains("/libc"));
    let libc = libc.expect("no C library in this process");
    assert_eq!(libc.kinds(), ["glibc"]);
    let names = libc.hook_names("glibc");
    for name in MALLOC.iter().flat_map(|(names, _)| *names) {
        // These are missing in older versions.
        if !name.starts_with("free_") {
            assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
        }
    }
    let mut offsets: Vec<_> = libc
        .functions
        .iter()
        .map(|function| function.offset)
        .collect();
    offsets.dedup();
    assert_eq!(offsets.len(), libc.functions.len());
}

/// Check that a file is searched once, and that one which could not be opened counts as not searched: another process may
/// have it as well.
#[test]
fn only_opened_files_count_as_searched() {
    let device = std::fs::File::open("/dev/zero").unwrap();
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // In a child, because other tests read all files that this process has mapped.
    // SAFETY: the child makes system calls only.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let (null, private) = (std::ptr::null_mut(), libc::MAP_PRIVATE);
        // SAFETY: a new mapping, at no particular address; the child waits until it is killed.
        unsafe {
            libc::mmap(null, 4096, protection, private, device.as_raw_fd(), 0);
            loop {
                libc::pause();
            }
        }
    }
    let pid = child as u32;
    let text = loop {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        if text.contains("/dev/zero") {
            break text;
        }
        std::thread::yield_now();
    };
    let numbers = |path: &str| {
        let mut mappings = maps::parse(&text);
        let it = mappings.find(|it| it.executable && it.path.contains(path));
        it.map(|it| (it.device, it.inode)).unwrap()
    };

    let mut searched = HashSet::new();
    let mut find = || {
        let mut reader = reader_of_tests();
        let wanted = LookFor::default();
        of_process(&mut reader, pid, wanted, Effort::Quick, &mut searched)
    };
    let (first, second) = (find(), find());
    // SAFETY: the child of this test, which is reaped at once.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(!first.unwrap().allocators.is_empty());
    assert!(second.unwrap().allocators.is_empty());
    assert!(searched.contains(&numbers("/libc.so")));
    assert!(!searched.contains(&numbers("/dev/zero")));
}

/// Check that the C library of a command is found before the command runs.
#[test]
fn the_glibc_of_a_command_is_found() {
    let libc = of_this_process()
        .allocators
        .into_iter()
        .find(|it| it.path.contains("/libc"));
    let mut reader = reader_of_tests();
    let files = files_of_command(&mut reader, &["/bin/sh".into()]);
    let found = of_command(&mut reader, files, LookFor::default());
    let id = libc.unwrap().id;
    assert!(found.allocators.iter().any(|it| it.id == id));
}

/// Check that files without an allocator, and files that are not ELF, yield nothing.
#[test]
fn other_files_have_none() {
    assert!(matches!(inspect("/etc/passwd"), Finding::Nothing));
    let libm = "/lib/x86_64-linux-gnu/libm.so.6";
    if Path::new(libm).exists() {
        assert!(matches!(inspect(libm), Finding::Nothing));
    }
}
