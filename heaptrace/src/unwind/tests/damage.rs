//! Files that are cut, changed at random, or not what they seem.
//!
//! Stage: unwind.

use std::time::Duration;

use object::{Object as _, ObjectSection as _};

use super::real::vdso;
use super::{Random, assert_sound};
use crate::unwind::{Limits, TableError, build};

const LIMITS: Limits = Limits {
    rows: 2_000,
    functions: 200,
    section_bytes: 1 << 16,
    time: Duration::from_secs(60),
};

fn try_build(data: &[u8]) -> bool {
    match build(data, &LIMITS) {
        Ok(table) => {
            assert_sound(&table);
            assert!(table.rows.len() <= LIMITS.rows);
            assert!(table.rules.len() <= LIMITS.rows + 2);
            true
        }
        Err(_) => false,
    }
}

/// Check that a file cut anywhere has a sound table or none.
#[test]
fn survives_cuts() {
    let image = vdso();
    assert!(try_build(&image));
    for end in 0..image.len() {
        try_build(&image[..end]);
    }
}

/// Check that changes anywhere in the unwind information give a sound table or none.
#[test]
fn survives_changes() {
    let image = vdso();
    let file = object::File::parse(image.as_slice()).unwrap();
    let (offset, size) = file
        .section_by_name(".eh_frame")
        .unwrap()
        .file_range()
        .unwrap();
    let (offset, size) = (offset as usize, size as usize);
    let mut random = Random(1);
    let mut built = 0;
    for round in 0..20_000 {
        let mut image = image.clone();
        for _ in 0..=round % 8 {
            let at = offset + random.below(size);
            image[at] = match random.next() % 3 {
                0 => random.next() as u8,
                1 => image[at] ^ (1 << (random.next() % 8)),
                _ => [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            };
        }
        built += usize::from(try_build(&image));
    }
    // Most changes leave something to build from, or the test would test little.
    assert!(built > 10_000, "{built}");
}

/// Check that changes of the headers give a sound table or none.
#[test]
fn survives_changed_headers() {
    let image = vdso();
    let mut random = Random(2);
    let tables = image.len() - 0x800;
    for round in 0..20_000 {
        let mut image = image.clone();
        for _ in 0..=round % 4 {
            let at = match random.next() % 2 {
                0 => random.below(0x400),
                _ => tables + random.below(0x800),
            };
            image[at] = random.next() as u8;
        }
        try_build(&image);
    }
}

/// Check that each limit is kept, and that what is no program of this machine is refused.
#[test]
fn refuses_what_is_too_much() {
    let image = vdso();
    let refused =
        |limits: Limits| matches!(build(image.as_slice(), &limits), Err(TableError::TooLarge));
    assert!(!refused(LIMITS));
    assert!(refused(Limits { rows: 10, ..LIMITS }));
    assert!(refused(Limits {
        functions: 2,
        ..LIMITS
    }));
    assert!(refused(Limits {
        section_bytes: 100,
        ..LIMITS
    }));
    let mut foreign = image.clone();
    foreign[18] = 183;
    let error = build(foreign.as_slice(), &LIMITS).unwrap_err();
    assert!(matches!(error, TableError::Foreign), "{error}");
    let error = build(&b"#!/bin/sh\n"[..], &LIMITS).unwrap_err();
    assert!(matches!(error, TableError::Elf(_)), "{error}");
}
