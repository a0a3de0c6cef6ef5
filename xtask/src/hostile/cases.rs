//! The zoo's cases: names, what is hostile, how long and how much memory.
//!
//! Part of hostile.

use anyhow::Result;

use super::zoo::{Cage, MIB, SECONDS};
use super::{data, files, programs, surroundings};

/// A case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) seconds: u64,
    pub(super) mib: u64,
    pub(super) run: fn(&Cage<'_>) -> Result<String>,
}

type Run = fn(&Cage<'_>) -> Result<String>;

const fn case(name: &'static str, what: &'static str, run: Run) -> Case {
    Case {
        name,
        what,
        seconds: SECONDS,
        mib: MIB,
        run,
    }
}

/// All of them.
pub(super) const CASES: &[Case] = &[
    case(
        "plain",
        "nothing: what all the others are measured by",
        programs::plain,
    ),
    case(
        "interpreter",
        "a file named to a command asks for a loader that leaves a mark",
        files::interpreter,
    ),
    case(
        "pipe-over-file",
        "a pipe is renamed over a mapped file",
        programs::pipe_over_a_mapped_file,
    ),
    case(
        "device-over-file",
        "a device node is renamed over a mapped file",
        programs::device_over_a_mapped_file,
    ),
    case(
        "other-root",
        "the path of a deleted file means another file on the host",
        programs::other_root,
    ),
    case(
        "truncated",
        "a mapped file is cut and grows again, many times",
        programs::truncated_while_mapped,
    ),
    case(
        "truncated-live",
        "the same, under the live view",
        programs::truncated_in_live_view,
    ),
    case(
        "written",
        "a mapped file is written over",
        programs::written_while_mapped,
    ),
    case("deleted", "a mapped file is deleted", programs::deleted),
    case(
        "memory-file",
        "code in a file in memory, with an escape sequence for a name",
        programs::memory_file,
    ),
    case(
        "sparse-symbols",
        "a symbol table of 6 GiB, all of it a hole",
        files::sparse_symbols,
    ),
    case(
        "many-relocations",
        "900,000 relocations of names of 4 kB",
        files::many_relocations,
    ),
    case(
        "malloc-breakpoint",
        "a malloc that begins with a breakpoint",
        files::malloc_begins_with_a_breakpoint,
    ),
    case(
        "malloc-lock",
        "a malloc that begins with a lock prefix",
        files::malloc_begins_with_a_lock,
    ),
    case(
        "bit-flips",
        "20 allocators with flipped bits",
        files::bit_flips,
    ),
    case(
        "rust-symbols",
        "1,000 symbols that look like Rust's allocator",
        files::rust_symbols,
    ),
    case(
        "forged-build-id",
        "two files with one build id",
        files::forged_build_id,
    ),
    case(
        "one-address",
        "20 files, mapped in turn at one address, by a process each",
        files::one_address,
    ),
    case(
        "garbage-frames",
        "unwind information of noise",
        files::garbage_frames,
    ),
    case(
        "cyclic-frames",
        "unwind entries that begin with each other",
        files::cyclic_frames,
    ),
    case(
        "giant-frames",
        "unwind information of 4 GiB",
        files::giant_frames,
    ),
    case(
        "giant-dwarf",
        "debug information of 8 GiB",
        files::giant_dwarf,
    ),
    case(
        "deep-dwarf",
        "debug entries nested 200,000 deep",
        files::deep_dwarf,
    ),
    Case {
        // The reader of names may take 3 GiB for all that it keeps.
        mib: 3 << 10,
        ..case(
            "compressed-sections",
            "sections that become 1 GiB, and say so or not",
            files::compressed_sections,
        )
    },
    case(
        "packed-symbols",
        "packed symbols that become 2 GiB",
        files::packed_symbols,
    ),
    case(
        "debug-links",
        "debug links to devices, pipes and other folders",
        files::debug_links,
    ),
    case(
        "build-ids",
        "build ids of 0 to 60,000 bytes, with paths in them",
        files::build_ids,
    ),
    case("endless-notes", "notes of 4 GiB", files::endless_notes),
    case(
        "claims",
        "headers that claim more than there is",
        files::claims,
    ),
    case(
        "dlopens",
        "a library loaded and unloaded 300 times",
        files::dlopen_storm,
    ),
    case(
        "many-files",
        "5,000 files mapped one after the other",
        programs::many_files,
    ),
    case("many-mappings", "10,000 mappings", programs::many_mappings),
    case(
        "forks",
        "2,000 processes, each for a moment",
        programs::forks,
    ),
    case("execs", "100 programs in one process", programs::execs),
    case("threads", "2,000 threads, 50 at a time", programs::threads),
    case("zombies", "500 zombies", programs::zombies),
    case(
        "deep-stack",
        "stacks of 40,000 frames",
        programs::deep_stack,
    ),
    case(
        "own-code",
        "code that is written as it runs",
        programs::own_code,
    ),
    case(
        "bad-frame-pointers",
        "frame pointers that lead nowhere, and into the kernel",
        programs::bad_frame_pointers,
    ),
    case(
        "thread-names",
        "1,000 names of threads, with escape sequences",
        programs::names_of_threads,
    ),
    case(
        "name-escapes",
        "a program whose path has escape sequences and lines",
        programs::name_with_escapes,
    ),
    case(
        "name-bytes",
        "a program whose path is no text",
        programs::name_that_is_no_text,
    ),
    case(
        "long-path",
        "a path of 3.7 kB and a command line of 120 kB",
        programs::long_path,
    ),
    case(
        "setuid",
        "a program that runs as another user",
        programs::setuid,
    ),
    case(
        "ptraced",
        "a process that another one traces",
        programs::ptraced,
    ),
    case(
        "undumpable",
        "a process that forbids to be looked at",
        programs::undumpable,
    ),
    case(
        "signals",
        "a process that sends signals to itself and to heaptrace",
        programs::signals,
    ),
    case(
        "stopped",
        "a process that stands still",
        surroundings::stopped,
    ),
    case(
        "zombie",
        "a process that has ended and is still there",
        surroundings::zombie,
    ),
    case(
        "no-process",
        "a process that is not there",
        surroundings::no_process,
    ),
    case(
        "killed-attaching",
        "a process that is killed while heaptrace attaches",
        surroundings::killed_while_attaching,
    ),
    case(
        "everything",
        "all processes, some of them hostile, and an end by a signal",
        surroundings::everything,
    ),
    case(
        "script-of-itself",
        "a script that is its own interpreter",
        surroundings::script_of_itself,
    ),
    case("overlay", "a program on an overlay", surroundings::overlay),
    case(
        "output-race",
        "links to root's file put where the data file goes",
        surroundings::output_race,
    ),
    case(
        "output-pipe",
        "a stranger's pipe where the data file goes",
        surroundings::output_is_a_pipe,
    ),
    case(
        "output-strangers",
        "a stranger's folder and a hard link to root's file",
        surroundings::output_is_a_strangers,
    ),
    case(
        "few-descriptors",
        "64 descriptors",
        surroundings::few_descriptors,
    ),
    case(
        "very-few-descriptors",
        "24 descriptors",
        surroundings::very_few_descriptors,
    ),
    case(
        "little-memory",
        "a control group of 64 MiB",
        surroundings::little_memory,
    ),
    case(
        "small-limits",
        "files of 512 bytes and a stack of 256 kB",
        surroundings::no_core_no_files,
    ),
    case(
        "repeated-records",
        "a data file of 20 kB with 500 MB of records",
        data::repeated_records,
    ),
    case(
        "repeated-names",
        "a data file of 20 kB with 500 MB of names",
        data::repeated_names,
    ),
    case(
        "endless-update",
        "a data file whose updates have empty records without end",
        data::endless_update,
    ),
    case(
        "wrong-lengths",
        "a data file whose chunks lie about their lengths",
        data::wrong_lengths,
    ),
    case("spoiled", "a data file with flipped bits", data::spoiled),
    case("cut", "a data file cut anywhere", data::cut),
    case(
        "no-files",
        "devices and folders in place of a data file",
        data::no_files,
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Check that there are at least 40 cases, each with a name of its own.
    #[test]
    fn cases_are_many() {
        let names: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        assert!(names.len() >= 40);
    }
}
