//! Every boundary at which bytes come in that somebody else made, with what has to hold there.
//!
//! No stage of the flow: it sees all, and only fuzzers see it (feature `fuzz`). One function for each boundary takes
//! any bytes and panics where the code behind the boundary has a bug. `fuzz/` hands them to cargo-fuzz, `tests/` to
//! a mutator of its own. It must not know where inputs come from.

use crate::{events, output, probes, profile, symbolize, unwind};

/// A boundary.
#[derive(Clone, Copy, Debug)]
pub struct Boundary {
    /// Its name: of cargo-fuzz's target, and of the folder of its corpus.
    pub name: &'static str,
    /// Which code reads what.
    pub what: &'static str,
    /// Takes an input. What it gives is 0 where the input was refused at once, and tells roughly how much of the
    /// code behind saw it where not: an input with a new number is worth to be kept and changed further.
    pub check: fn(&[u8]) -> u64,
    /// Most bytes of memory that an input may take beyond `per_byte` for each of its own.
    pub fixed_bytes: usize,
    /// Most bytes of memory for each byte of an input.
    pub per_byte: usize,
    /// Longest input that is worth while.
    pub longest: usize,
}

impl Boundary {
    /// The one with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BOUNDARIES.iter().find(|boundary| boundary.name == name)
    }

    /// Most memory that an input of so many bytes may take.
    pub fn most_bytes(&self, length: usize) -> usize {
        self.fixed_bytes + self.per_byte * length
    }
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const fn boundary(name: &'static str, what: &'static str, check: fn(&[u8]) -> u64) -> Boundary {
    Boundary {
        name,
        what,
        check,
        fixed_bytes: 64 * KIB,
        per_byte: 64,
        longest: 4 * KIB,
    }
}

/// All of them.
pub const BOUNDARIES: &[Boundary] = &[
    Boundary {
        // A chunk may hold 16 MiB, and is decompressed before anything is known of it.
        fixed_bytes: 96 * MIB,
        longest: 16 * KIB,
        ..boundary(
            "data_file",
            "a data file, as bytes",
            profile::fuzz::data_file,
        )
    },
    Boundary {
        fixed_bytes: 8 * MIB,
        per_byte: KIB,
        longest: 8 * KIB,
        ..boundary(
            "data_messages",
            "the messages of a data file whose chunks are whole, folded",
            profile::fuzz::messages,
        )
    },
    Boundary {
        fixed_bytes: 8 * MIB,
        per_byte: 8 * KIB,
        longest: 8 * KIB,
        ..boundary(
            "reports",
            "what a data file says, written in each format",
            output::fuzz::reports,
        )
    },
    boundary(
        "ring_events",
        "records of the kernel program's ring",
        events::fuzz::ring,
    ),
    boundary(
        "sideband",
        "perf's records of mappings and processes",
        events::fuzz::sideband,
    ),
    Boundary {
        per_byte: 256,
        ..boundary("maps", "/proc/PID/maps", probes::fuzz::maps)
    },
    boundary("status", "/proc/PID/status", probes::fuzz::status),
    Boundary {
        fixed_bytes: 4 * MIB,
        per_byte: 256,
        longest: 64 * KIB,
        ..boundary(
            "allocators",
            "an ELF file: symbols, relocations, packed symbols, and code that is followed",
            probes::fuzz::allocators,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        ..boundary(
            "placement",
            "the code of a function, for the best place of a probe",
            probes::fuzz::placement,
        )
    },
    Boundary {
        fixed_bytes: 2 * MIB,
        longest: 64 * KIB,
        ..boundary(
            "unwind_table",
            "an ELF file: .eh_frame and .debug_frame",
            unwind::fuzz::table,
        )
    },
    Boundary {
        longest: 16 * KIB,
        ..boundary(
            "kept_table",
            "an unwind table that was kept on disk",
            unwind::fuzz::kept,
        )
    },
    Boundary {
        fixed_bytes: 4 * MIB,
        longest: 64 * KIB,
        ..boundary(
            "debug_links",
            "an ELF file: build id, debug link, compressed sections",
            symbolize::fuzz::facts,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        per_byte: 256,
        ..boundary(
            "demangle",
            "mangled C++ and Rust names",
            symbolize::fuzz::demangle,
        )
    },
    boundary("cgroup", "paths of control groups", output::fuzz::cgroup),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are each a boundary's own, and that no boundary fails on nothing.
    #[test]
    fn names_are_distinct() {
        for boundary in BOUNDARIES {
            let found = Boundary::named(boundary.name).unwrap();
            assert!(std::ptr::eq(found, boundary), "{}", boundary.name);
            (boundary.check)(&[]);
        }
    }
}
