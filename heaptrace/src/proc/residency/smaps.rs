//! Parses `/proc/PID/smaps`, and tells kinds of mappings apart.
//!
//! Part of `proc`. Must not know pages.

use std::io::{self, BufRead};

use super::mapping::{Mapping, MappingKind};
use crate::proc::maps;

/// A mapping, with what its kind is found by.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    pub(super) mapping: Mapping,
    pub(super) is_private: bool,
    pub(super) is_writable: bool,
    has_file: bool,
}

/// Bytes of names that are kept whole. Beyond that, long names lose their middle, so that a list has a bounded size.
const WHOLE_NAMES: usize = 1 << 20;

/// Bytes of a shortened name: its beginning, by which kinds are told apart, and its end, which people look for.
const HEAD: usize = 16;
const TAIL: usize = 32;

/// The mappings of a process.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) mappings: Vec<Mapped>,
    pub(super) left_out: u64,
}

/// Parses a list of mappings, and keeps at most so many.
pub(super) fn parse(mut text: impl BufRead, most: usize) -> io::Result<Listed> {
    let mut listed = Listed::default();
    let mut line = Vec::new();
    let mut is_kept = false;
    let mut room = WHOLE_NAMES;
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line)? == 0 {
            return Ok(listed);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\n');
        if let Some(it) = maps::parse(line).next() {
            is_kept = listed.mappings.len() < most;
            if is_kept {
                let mut mapped = mapped(it);
                shorten(&mut mapped.mapping.name, &mut room);
                listed.mappings.push(mapped);
            } else {
                listed.left_out += 1;
            }
        } else if is_kept && let Some(it) = listed.mappings.last_mut() {
            add_sum(&mut it.mapping, line);
        }
    }
}

/// Takes the middle out of a long name if there is no room for all of it.
fn shorten(name: &mut String, room: &mut usize) {
    if let Some(left) = room.checked_sub(name.len()) {
        *room = left;
        return;
    }
    let is_end = |at: &usize| name.is_char_boundary(*at);
    let head = (0..=HEAD).rev().find(is_end).unwrap_or(0);
    let tail = (name.len().saturating_sub(TAIL)..=name.len())
        .find(is_end)
        .unwrap_or(name.len());
    if tail > head {
        name.replace_range(head..tail, "…");
    }
}

fn mapped(it: maps::Mapping) -> Mapped {
    Mapped {
        is_private: it.permissions[3] == b'p',
        is_writable: it.permissions[1] == b'w',
        has_file: it.inode != 0,
        mapping: Mapping {
            start: it.start,
            end: it.end,
            name: it.path,
            ..Mapping::default()
        },
    }
}

fn add_sum(mapping: &mut Mapping, line: &str) {
    let Some((name, value)) = line.split_once(':') else {
        return;
    };
    let kib = value
        .trim()
        .strip_suffix(" kB")
        .and_then(|it| it.parse().ok());
    let bytes = kib.and_then(|it: u64| it.checked_mul(1024)).unwrap_or(0);
    match name {
        "Rss" => mapping.resident = bytes,
        "Private_Clean" | "Private_Dirty" => mapping.private += bytes,
        "Swap" => mapping.swapped = bytes,
        "AnonHugePages" => mapping.huge = bytes,
        _ => {}
    }
}

/// Finds the kinds of mappings, of which some hold the stack pointers of threads.
pub(super) fn find_kinds(mappings: &mut [Mapped], stack_pointers: &[u64]) {
    // The end of the last file that was mapped writable: zeroed variables follow it.
    let mut data_end = None;
    for it in mappings {
        let mapping = &mut it.mapping;
        let has_stack = |it: &Mapping| {
            let mut pointers = stack_pointers.iter();
            pointers.any(|pointer| it.start <= *pointer && *pointer < it.end)
        };
        mapping.kind = match mapping.name.as_str() {
            "[heap]" => MappingKind::Heap,
            "[stack]" => MappingKind::Stack,
            "[vdso]" | "[vsyscall]" | "[uprobes]" => MappingKind::Kernel,
            name if name.starts_with("[vvar") => MappingKind::Kernel,
            _ if !it.is_private => MappingKind::Shared,
            _ if it.has_file => MappingKind::File,
            _ if has_stack(mapping) => MappingKind::Stack,
            "" if it.is_writable && data_end == Some(mapping.start) => MappingKind::File,
            _ => MappingKind::Anonymous,
        };
        let is_data = it.has_file && it.is_private && it.is_writable;
        data_end = is_data.then_some(mapping.end);
        // A file that is only read can be shared, too, but is no memory of that kind.
        let is_of_disk = it.has_file
            && !mapping.name.starts_with("/memfd:")
            && !mapping.name.starts_with("/dev/")
            && !mapping.name.starts_with("/SYSV");
        if mapping.kind == MappingKind::Shared && is_of_disk {
            mapping.kind = MappingKind::File;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
5000-6000 r-xp 00000000 fe:00 12                 /usr/bin/a b
Size:                  4 kB
Rss:                   4 kB
Private_Clean:         4 kB
VmFlags: rd ex mr mw me
6000-7000 rw-p 00001000 fe:00 12                 /usr/bin/a b
Rss:                   4 kB
7000-9000 rw-p 00000000 00:00 0
Rss:                   8 kB
9000-a000 rw-p 00000000 00:00 0                  [heap]
Rss:                   4 kB
Swap:                 12 kB
AnonHugePages:      2048 kB
b000-c000 rw-p 00000000 00:00 0
c000-d000 rw-s 00000000 00:01 7                  /memfd:x (deleted)
d000-e000 rw-p 00000000 00:00 0
e000-f000 r-xp 00000000 00:00 0                  [vdso]
";

    /// Check that sums are those of their mapping, and that variables, stacks and shared memory are told apart.
    #[test]
    fn mappings_have_sums_and_kinds() {
        let mut listed = parse(TEXT.as_bytes(), 100).unwrap();
        find_kinds(&mut listed.mappings, &[0xdf00]);
        let kinds = listed.mappings.iter().map(|it| it.mapping.kind);
        use MappingKind::{Anonymous, File, Heap, Kernel, Shared, Stack};
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [File, File, File, Heap, Anonymous, Shared, Stack, Kernel]
        );
        let heap = &listed.mappings[3].mapping;
        assert_eq!(
            (heap.resident, heap.swapped, heap.huge),
            (4096, 12 << 10, 2 << 20)
        );
        assert_eq!(listed.mappings[0].mapping.private, 4096);
        assert_eq!(listed.mappings[0].mapping.name, "/usr/bin/a b");
    }

    /// Check that a list has a limit, and that what is left out is counted and adds to no other mapping.
    #[test]
    fn lists_are_bounded() {
        let listed = parse(TEXT.as_bytes(), 3).unwrap();
        assert_eq!((listed.mappings.len(), listed.left_out), (3, 5));
        assert_eq!(listed.mappings[2].mapping.resident, 8192);
    }

    /// Check that names stay whole while there is room, and that the kind of a shortened one is still found.
    #[test]
    fn long_names_are_shortened() {
        let long = format!("/memfd:{}end", "ä".repeat(2_000));
        let line = |at: u64| format!("{at:x}000-{:x}000 rw-s 00000000 00:01 7 {long}\n", at + 1);
        let text: String = (1..=1_000).map(line).collect();
        let mut listed = parse(text.as_bytes(), 2_000).unwrap();
        find_kinds(&mut listed.mappings, &[]);
        let names = listed.mappings.iter().map(|it| it.mapping.name.len());
        assert!(names.sum::<usize>() < WHOLE_NAMES + 1_000 * 64);
        let last = &listed.mappings[999].mapping;
        assert!(last.name.starts_with("/memfd:") && last.name.ends_with("end"));
        assert_eq!(listed.mappings[0].mapping.name, long);
        assert_eq!(last.kind, MappingKind::Shared);
    }
}
