//! The boundaries at which heaptrace reads bytes that others made, each with a check for fuzzers (feature
//! `fuzz`).
//!
//! No stage of the flow: it sees all stages, and only fuzzers use it. The check of a boundary takes any
//! bytes, and panics if the code behind the boundary has a bug. cargo-fuzz runs the checks from `fuzz/`, a
//! mutator of our own from `tests/`. Must not know where inputs come from.

use crate::reader::Job;
use crate::{
    core_file, doctor, events, hotspot, jit, jobs, output, probes, profile, python, symbolize, sys,
    types, unwind, v8,
};

/// A boundary.
#[derive(Clone, Copy, Debug)]
pub struct Boundary {
    /// The name of the cargo-fuzz target and of the corpus folder.
    pub name: &'static str,
    /// The bytes that the boundary reads.
    pub what: &'static str,
    /// Checks an input. Returns 0 if the input was refused at once; otherwise a number that shows roughly
    /// which code the input reached. An input with a new number is worth keeping and changing further.
    pub check: fn(&[u8]) -> u64,
    /// Most bytes of memory that an input may use, in addition to `per_byte`.
    pub fixed_bytes: usize,
    /// Most bytes of memory for each byte of the input.
    pub per_byte: usize,
    /// Longest input that is useful.
    pub longest: usize,
}

impl Boundary {
    /// Finds a boundary by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        BOUNDARIES.iter().find(|boundary| boundary.name == name)
    }

    /// Most memory that an input of a length may use.
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

/// All boundaries.
pub static BOUNDARIES: &[Boundary] = &[
    Boundary {
        // A chunk may hold 16 MiB, and is decompressed before its content is checked.
        fixed_bytes: 96 * MIB,
        longest: 16 * KIB,
        ..boundary(
            "data_file",
            "the bytes of a data file",
            profile::fuzz::data_file,
        )
    },
    Boundary {
        fixed_bytes: 8 * MIB,
        per_byte: KIB,
        longest: 8 * KIB,
        ..boundary(
            "data_messages",
            "the messages of a data file with valid chunks, folded to a profile",
            profile::fuzz::messages,
        )
    },
    Boundary {
        fixed_bytes: 8 * MIB,
        per_byte: 8 * KIB,
        longest: 8 * KIB,
        ..boundary(
            "reports",
            "the content of a data file, written in each format",
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
            "an ELF file: symbols, relocations, packed symbols, and the code of functions",
            probes::fuzz::allocators,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        longest: 64 * KIB,
        ..boundary(
            "slots",
            "an ELF file: the slots by which it calls functions",
            probes::fuzz::slots,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        ..boundary(
            "placement",
            "the code of a function, for the cheapest probe location",
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
            "an unwind table from the cache on disk",
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
    Boundary {
        longest: 10 * KIB,
        ..boundary(
            "python_code",
            "the line table and the name of a Python function",
            python::fuzz::code,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        longest: 64 * KIB,
        ..boundary(
            "python_image",
            "an ELF file: a Python interpreter in it",
            python::fuzz::file,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        per_byte: KIB,
        longest: 16 * KIB,
        ..boundary(
            "perf_map",
            "a perf map: names of generated code, as text",
            jit::fuzz::perf_map,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        per_byte: KIB,
        longest: 16 * KIB,
        ..boundary(
            "jitdump",
            "a jitdump file: names and lines of generated code",
            jit::fuzz::jitdump,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        longest: 64 * KIB,
        ..boundary("v8_image", "an ELF file: V8 in it", v8::fuzz::file)
    },
    Boundary {
        fixed_bytes: MIB,
        per_byte: KIB,
        longest: 16 * KIB,
        ..boundary(
            "v8_heap",
            "the memory of a process: functions, scripts and positions of JavaScript",
            v8::fuzz::heap,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        longest: 64 * KIB,
        ..boundary(
            "hotspot_image",
            "an ELF file: a Java virtual machine in it",
            hotspot::fuzz::file,
        )
    },
    Boundary {
        fixed_bytes: 4 * MIB,
        longest: 16 * KIB,
        ..boundary(
            "hotspot_memory",
            "the memory of a Java virtual machine: its structures, and the names of a frame",
            hotspot::fuzz::memory,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        longest: 16 * KIB,
        ..boundary(
            "core_file",
            "a core file: registers, mappings and memory",
            core_file::fuzz,
        )
    },
    Boundary {
        fixed_bytes: 16 * MIB,
        per_byte: KIB,
        longest: 64 * KIB,
        ..boundary(
            "types_file",
            "an ELF file: debug information and code, for the types at its calls",
            types::fuzz::file,
        )
    },
    Boundary {
        fixed_bytes: MIB,
        per_byte: KIB,
        longest: 8 * KIB,
        ..boundary(
            "types_names",
            "the names of a stack's functions, for the type of its blocks",
            types::fuzz::names,
        )
    },
    boundary("cgroup", "paths of control groups", output::fuzz::cgroup),
    Boundary {
        fixed_bytes: MIB,
        // Each regular expression has 64 KiB at most.
        per_byte: 16 * KIB,
        longest: KIB,
        ..boundary(
            "filters",
            "an expression of the filter language, and a file of named ones",
            output::fuzz::filters,
        )
    },
];

/// Checks that any question about any file gets an answer that the tracer can decode. The input: a byte for
/// the job, a byte for the length of the question, the question, and the file.
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
    // An invalid question gets an empty answer, which is refused.
    if answer.is_empty() {
        return 0;
    }
    let seen = check_answer(job, &answer);
    assert!(seen > 0, "{job:?}: {answer:x?}");
    (job as u64) << 32 | seen
}

/// Checks that any answer is either refused or valid for the stage that asked.
fn answers(data: &[u8]) -> u64 {
    let Some((job, answer)) = data.split_first() else {
        return 0;
    };
    let job = Job::ALL[usize::from(*job) % Job::ALL.len()];
    match check_answer(job, answer) {
        0 => 0,
        seen => (job as u64) << 32 | seen,
    }
}

/// Decodes an answer as the tracer does; returns 0 if the answer is refused.
fn check_answer(job: Job, answer: &[u8]) -> u64 {
    match job {
        Job::Identify | Job::Needs | Job::Inspect | Job::Slots => probes::fuzz::answer(job, answer),
        Job::Fingerprint | Job::Table => unwind::fuzz::answer(job, answer),
        Job::HotSpot => hotspot::fuzz::answer(answer),
        Job::Facts | Job::Names | Job::Units => symbolize::fuzz::answer(job, answer),
        Job::Classes => types::fuzz::classes(answer),
        Job::Types => types::fuzz::answer(answer),
        Job::GeneratedCode => jit::fuzz::answer(answer),
        Job::V8 => v8::fuzz::answer(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all names are distinct, and that each boundary accepts empty input.
    #[test]
    fn names_are_distinct() {
        for boundary in BOUNDARIES {
            let found = Boundary::named(boundary.name).unwrap();
            assert!(std::ptr::eq(found, boundary), "{}", boundary.name);
            (boundary.check)(&[]);
        }
    }
}
