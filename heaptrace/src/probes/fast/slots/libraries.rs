//! Recognizes C libraries, by their own names and by glibc's banner.
//!
//! Stage: probes. Runs in a reader: the file may contain anything.

use object::elf::{DT_SONAME, DT_STRTAB};

use super::elf::Elf;

/// Most bytes of a part of a C library that are searched for the banner.
const MAX_SEARCHED: u64 = 16 << 20;

/// Longest name of a library that matters.
const MAX_NAME: u64 = 64;

/// Longest banner.
const MAX_BANNER: usize = 256;

/// The version of glibc, if the file is its C library.
pub(super) fn glibc(file: &Elf<'_>) -> Option<(u32, u32)> {
    if own_name(file)? != b"libc.so.6" {
        return None;
    }
    file.loads
        .iter()
        .filter(|load| !load.is_writable)
        .find_map(|load| version(&file.bytes(load.address, MAX_SEARCHED)?))
}

/// Whether the file is musl's C library, or a program for it.
pub(super) fn is_musl(file: &Elf<'_>) -> bool {
    let is_library =
        own_name(file).is_some_and(|name| name == b"libc.so" || name.starts_with(b"libc.musl-"));
    let loader = b"/ld-musl-";
    is_library
        || file
            .interpreter
            .windows(loader.len())
            .any(|it| it == loader)
}

/// The name that a library gives itself.
fn own_name(file: &Elf<'_>) -> Option<Vec<u8>> {
    let strings = file.value(DT_STRTAB)?;
    let at = strings.checked_add(file.value(DT_SONAME)?)?;
    let bytes = file.bytes(at, MAX_NAME)?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(bytes.get(..end)?.to_vec())
}

/// The version in glibc's banner: `GNU C Library (…) stable release version 2.36.`
pub(super) fn version(bytes: &[u8]) -> Option<(u32, u32)> {
    const BANNER: &[u8] = b"GNU C Library ";
    const WORD: &str = "release version ";
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == BANNER[0]) {
        rest = rest.get(at..)?;
        if rest.starts_with(BANNER) {
            let banner = rest.get(..rest.len().min(MAX_BANNER))?;
            let text = String::from_utf8_lossy(banner);
            if let Some((_, behind)) = text.split_once(WORD) {
                return numbers(behind);
            }
        }
        rest = rest.get(1..)?;
    }
    None
}

/// The two numbers at the beginning of a text, as in `2.36.`
fn numbers(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    let first = numbers.next()?.parse().ok()?;
    Some((first, numbers.next()?.parse().ok()?))
}
