//! The slots of this machine's files, compared with what the dynamic linker put into them.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::path::Path;

use super::super::{Slots, slots_of};
use crate::jobs::reader_of_tests;
use crate::proc::maps::{self, Mapping};

/// The functions whose slots are asked for.
const NAMES: [&str; 7] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "posix_memalign",
    "memalign",
    "aligned_alloc",
];

fn slots(path: &str) -> Slots {
    let file = File::open(path).unwrap();
    slots_of(&mut reader_of_tests(), path, &file, &NAMES).unwrap()
}

/// The mappings of this process whose paths have a part.
fn own_mappings(part: &str) -> Vec<Mapping> {
    let text = maps::read(std::process::id()).unwrap();
    let is_wanted = |it: &Mapping| it.path.contains(part);
    maps::parse(&text).filter(is_wanted).collect()
}

/// The address that the dynamic linker gives for a name.
fn address_of(name: &str) -> u64 {
    let name = CString::new(name).unwrap();
    // SAFETY: the name ends with a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as u64 }
}

/// Check that every slot of the running program has the address of its function in it.
#[test]
fn slots_of_this_program_hold_functions() {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let found = slots(program);
    let mappings = own_mappings(program);
    let in_process = found.in_process(&mappings);
    assert_eq!(in_process.len(), found.slots.len());
    let mut seen = [false; NAMES.len()];
    for slot in in_process {
        let name = usize::from(slot.name);
        // SAFETY: the slot is in a mapping of the program, which is never unmapped.
        let value = unsafe { (slot.address as *const u64).read() };
        assert_eq!(value, address_of(NAMES[name]), "{}", NAMES[name]);
        seen[name] = true;
    }
    assert!(seen[..4].iter().all(|it| *it), "{found:?}");
    assert_eq!((found.glibc, found.is_musl), (None, false));
}

/// Check that slots are found only in mappings of the file, wherever it is loaded.
#[test]
fn slots_lie_in_mappings() {
    let found = slots("/proc/self/exe");
    assert!(found.in_process(&[]).is_empty());
    let program = std::env::current_exe().unwrap();
    let mut mappings = own_mappings(program.to_str().unwrap());
    let once = found.in_process(&mappings);
    let shifted = mappings.iter().map(|it| Mapping {
        start: it.start + (1 << 40),
        end: it.end + (1 << 40),
        ..it.clone()
    });
    let shifted: Vec<Mapping> = shifted.collect();
    mappings.extend(shifted);
    assert_eq!(found.in_process(&mappings).len(), 2 * once.len());
    // Without the code, the file may only be mapped to be read, at once or in parts.
    let mut data: Vec<Mapping> = mappings
        .iter()
        .filter(|it| !it.executable)
        .cloned()
        .collect();
    assert!(found.in_process(&data).is_empty());
    let whole = Mapping {
        start: 1 << 50,
        end: (1 << 50) + (1 << 30),
        offset: 0,
        ..data.remove(0)
    };
    mappings.push(whole);
    assert_eq!(found.in_process(&mappings).len(), 2 * once.len());
    // Without the data, the slots are in no mapping.
    mappings.retain(|it| it.executable);
    assert!(found.in_process(&mappings).is_empty());
}

/// Check that this machine's C library is known by its version.
#[test]
fn the_c_library_has_a_version() {
    let path = own_mappings("/libc.so.6").remove(0).path;
    let found = slots(&path);
    // SAFETY: the C library returns a text that ends with a zero and lives forever.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let (major, minor) = version.to_str().unwrap().split_once('.').unwrap();
    let expected = (major.parse().unwrap(), minor.parse().unwrap());
    assert_eq!((found.glibc, found.is_musl), (Some(expected), false));
}

/// Check that programs and libraries of C and C++ have slots of the linkage table.
#[test]
fn other_files_have_slots() {
    for path in [
        "/bin/bash",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/bin/python3",
    ] {
        if !Path::new(path).exists() {
            continue;
        }
        let found = slots(path);
        for name in 0..2 {
            assert!(found.slots.iter().any(|it| it.name == name), "{path}");
        }
        assert_eq!(found.glibc, None, "{path}");
    }
    assert_eq!(slots("/etc/passwd"), Slots::default());
}
