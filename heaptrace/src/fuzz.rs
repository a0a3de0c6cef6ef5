//! Every boundary at which bytes come in that somebody else made, with what has to hold there.
//!
//! No stage of the flow: it sees all, and only fuzzers see it (feature `fuzz`). One function for each boundary takes
//! any bytes and panics where the code behind the boundary has a bug. `fuzz/` hands them to cargo-fuzz, `tests/` to
//! a mutator of its own. It must not know where inputs come from.

use crate::reader::Job;
use crate::{doctor, events, jobs, output, probes, profile, symbolize, sys, unwind};

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
pub static BOUNDARIES: &[Boundary] = &[
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
    boundary("status", "/proc/PID/status", doctor::fuzz::status),
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
            unwind::fuzz::cached_table,
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
    Boundary {
        longest: 16 * KIB,
        ..boundary(
            "needs",
            "a program: its interpreter, its loader and its libraries",
            probes::fuzz::needs,
        )
    },
    Boundary {
        fixed_bytes: 16 * MIB,
        per_byte: KIB,
        longest: 16 * KIB,
        ..boundary(
            "reader_questions",
            "messages to a reader, with a file",
            questions,
        )
    },
    Boundary {
        fixed_bytes: 2 * MIB,
        longest: 16 * KIB,
        ..boundary("reader_answers", "messages of a reader", answers)
    },
    boundary("cgroup", "paths of control groups", output::fuzz::cgroup),
];

/// Any question about any file has an answer that the tracer can decode: a byte for the job, one for the length of the
/// question, the question, and the file.
fn questions(data: &[u8]) -> u64 {
    let [job, length, rest @ ..] = data else {
        return 0;
    };
    let (question, content) = rest.split_at(rest.len().min(usize::from(*length)));
    let job = Job::ALL[usize::from(*job) % Job::ALL.len()];
    let Ok(file) = sys::file_in_memory("input", content) else {
        return 0;
    };
    let answer = jobs::answers()(job, question, vec![file]);
    // A question that is none has no answer, which is refused.
    if answer.is_empty() {
        return 0;
    }
    let seen = said(job, &answer);
    assert!(seen > 0, "{job:?}: {answer:x?}");
    (job as u64) << 32 | seen
}

/// Any answer is either refused or passes the checks of whoever asked.
fn answers(data: &[u8]) -> u64 {
    let Some((job, answer)) = data.split_first() else {
        return 0;
    };
    let job = Job::ALL[usize::from(*job) % Job::ALL.len()];
    match said(job, answer) {
        0 => 0,
        seen => (job as u64) << 32 | seen,
    }
}

/// What the tracer makes of an answer; 0 where it is none.
fn said(job: Job, answer: &[u8]) -> u64 {
    match job {
        Job::Identify | Job::Needs | Job::Inspect => probes::fuzz::said(job, answer),
        Job::Fingerprint | Job::Table => unwind::fuzz::answer(job, answer),
        Job::Facts | Job::Names => symbolize::fuzz::answer(job, answer),
    }
}

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
