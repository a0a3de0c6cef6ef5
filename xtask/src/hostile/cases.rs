//! The list of hostile cases: names, descriptions, and their limits of time and memory.
//!
//! Part of hostile.

use anyhow::Result;

use super::suite::{CaseRun, MIB, SECONDS};
use super::{data, dwarf, files, languages, programs, surroundings};

/// A hostile case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) seconds: u64,
    pub(super) mib: u64,
    pub(super) run: fn(&CaseRun<'_>) -> Result<String>,
}

type Run = fn(&CaseRun<'_>) -> Result<String>;

const fn case(name: &'static str, what: &'static str, run: Run) -> Case {
    Case {
        name,
        what,
        seconds: SECONDS,
        mib: MIB,
        run,
    }
}

/// All cases.
pub(super) const CASES: &[Case] = &[
    case(
        "plain",
        "nothing: the baseline for the other cases",
        programs::plain,
    ),
    case(
        "interpreter",
        "a file in a command's arguments names a loader that leaves a mark",
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
        "a mapped file is truncated and grows again, many times",
        programs::truncated_while_mapped,
    ),
    case(
        "truncated-live",
        "the same, with the live view",
        programs::truncated_in_live_view,
    ),
    case(
        "written",
        "a mapped file is overwritten",
        programs::written_while_mapped,
    ),
    case("deleted", "a mapped file is deleted", programs::deleted),
    case(
        "memory-file",
        "code in a memory file whose name is an escape sequence",
        programs::memory_file,
    ),
    case(
        "sparse-symbols",
        "a symbol table of 6 GiB that is a hole in the file",
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
        "20 files, mapped one after another at one address, each by its own process",
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
    case(
        "name-cycles",
        "functions in debug information that are each other's origin",
        dwarf::cycles,
    ),
    case(
        "deep-inlines",
        "functions inlined into each other, 50,000 deep",
        dwarf::deep_inlines,
    ),
    case(
        "long-names",
        "a function with a name of 1 MB, inlined into itself 200 times",
        dwarf::long_names,
    ),
    case(
        "split-units",
        "6,000 units whose debug information is in pipes, devices, other users' files and each other",
        dwarf::split_units,
    ),
    Case {
        // The reader of names may use 3 GiB for all data that it keeps.
        mib: 3 << 10,
        ..case(
            "compressed-sections",
            "compressed sections of 1 GiB, with a true and a false size",
            files::compressed_sections,
        )
    },
    case(
        "packed-symbols",
        "compressed symbols of 2 GiB",
        files::packed_symbols,
    ),
    case(
        "debug-links",
        "debug links to devices, pipes and other folders",
        files::debug_links,
    ),
    case(
        "build-ids",
        "build ids of 0 to 60,000 bytes, some with paths in them",
        files::build_ids,
    ),
    case("endless-notes", "notes of 4 GiB", files::endless_notes),
    case(
        "claims",
        "headers that claim more data than the file has",
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
    case("forks", "2,000 short processes", programs::forks),
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
        "code that is written at run time",
        programs::own_code,
    ),
    case(
        "bad-frame-pointers",
        "frame pointers to unmapped memory and into the kernel",
        programs::bad_frame_pointers,
    ),
    case(
        "perf-map-names",
        "a perf map with 200,000 lines, a name of 1 MB, escape sequences, and code everywhere",
        languages::perf_map_names,
    ),
    case(
        "perf-map-kinds",
        "pipes, devices, folders, links, and files of 1 TiB at the path of a perf map",
        languages::perf_map_kinds,
    ),
    case(
        "jitdump",
        "jitdump files whose records have wrong lengths, or no end",
        languages::jitdump,
    ),
    case(
        "overwritten-python",
        "a Python program that overwrites the descriptions of its functions",
        languages::overwritten_python,
    ),
    case(
        "false-java",
        "a library that says it is Java's virtual machine, and describes itself in circles",
        languages::false_java,
    ),
    case(
        "thread-names",
        "1,000 thread names with escape sequences",
        programs::names_of_threads,
    ),
    case(
        "name-escapes",
        "a program whose path has escape sequences and line breaks",
        programs::name_with_escapes,
    ),
    case(
        "name-bytes",
        "a program whose path is not valid text",
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
        "a process that another process traces",
        programs::ptraced,
    ),
    case(
        "undumpable",
        "a process that forbids inspection",
        programs::undumpable,
    ),
    case(
        "signals",
        "a process that sends signals to itself and to heaptrace",
        programs::signals,
    ),
    case("stopped", "a stopped process", surroundings::stopped),
    case("zombie", "a zombie process", surroundings::zombie),
    case(
        "no-process",
        "a process that does not exist",
        surroundings::no_process,
    ),
    case(
        "killed-attaching",
        "a process that is killed while heaptrace attaches",
        surroundings::killed_while_attaching,
    ),
    case(
        "everything",
        "all processes, some of them hostile, ended by a signal",
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
        "links to root's file at the data file's path",
        surroundings::output_race,
    ),
    case(
        "output-pipe",
        "another user's pipe at the data file's path",
        surroundings::output_is_a_pipe,
    ),
    case(
        "output-strangers",
        "another user's folder, and a hard link to root's file",
        surroundings::output_is_of_another_user,
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
        "a data file whose chunks have wrong lengths",
        data::wrong_lengths,
    ),
    case("spoiled", "a data file with flipped bits", data::spoiled),
    case("cut", "a data file cut at any position", data::cut),
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

    /// Check that there are at least 40 cases, and that their names are distinct.
    #[test]
    fn cases_are_many() {
        let names: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        assert!(names.len() >= 40);
    }
}
