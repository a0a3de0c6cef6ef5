//! Losses and other events of a run in words that a user knows, with what to do about them.
//!
//! Stage: output. Data files and JSON have the names that `join` and the kernel program give them.

use heaptrace_common::counters::Counter;

use crate::join::{Loss, Note};

/// What a reason means for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// What was counted, behind a number: `allocations found no room in the buffer`.
    pub(super) what: &'static str,
    /// What to do about it; empty if there is nothing to do.
    pub(super) advice: &'static str,
    /// Whether a reader of the totals must know it.
    pub(super) matters: bool,
}

/// The words for a name in `Quality::lost`; `None` for a name that this version does not know.
pub(super) fn of_lost(name: &str) -> Option<Words> {
    let loss = Loss::ALL.iter().find(|it| it.name() == name);
    loss.map(|it| loss_words(*it)).or_else(|| counted(name))
}

/// The words for a name in `Quality::noted`; `None` for a name that this version does not know.
pub(super) fn of_noted(name: &str) -> Option<Words> {
    let note = Note::ALL.iter().find(|it| it.name() == name);
    note.map(|it| note_words(*it))
        .or_else(|| counted(name))
        .or_else(|| name.strip_prefix("stack_broken_").map(broken_stack))
}

fn counted(name: &str) -> Option<Words> {
    let counter = Counter::ALL.iter().find(|it| it.name() == name);
    counter.map(|it| counter_words(*it))
}

const fn bad(what: &'static str, advice: &'static str) -> Words {
    Words {
        what,
        advice,
        matters: true,
    }
}

const fn harmless(what: &'static str) -> Words {
    Words {
        what,
        advice: "",
        matters: false,
    }
}

const REPORT_IT: &str = "please report it: this should not happen";
const MORE_MEMORY: &str = "raise --max-memory, or record less with --sample";

fn loss_words(loss: Loss) -> Words {
    match loss {
        Loss::Unjoined => bad(
            "events were dropped, because the process or stack that they name was lost",
            "raise --ring-size, or record less with --sample",
        ),
        Loss::SweptLive => bad(
            "blocks count as freed too early, because their address was used again while frees were lost",
            "raise --ring-size, or record less with --sample",
        ),
        Loss::MappingsFull => bad(
            "memory mappings were not recorded: there were too many",
            "leave mapped memory out of the run",
        ),
        Loss::Undecoded => bad("events could not be understood", REPORT_IT),
        Loss::Unread => bad(
            "events stopped heaptrace from reading later ones, because they were not written in time",
            REPORT_IT,
        ),
        Loss::Sideband => bad(
            "notices of new code, forks or ends of processes were lost: names of functions may be wrong",
            "trace fewer processes",
        ),
        Loss::Births => bad(
            "child processes may be missing",
            "trace the children by --pid, or use Linux 6.12 or newer",
        ),
        Loss::Files => bad(
            "files were not searched for allocators, because too many appeared at once",
            "trace fewer processes",
        ),
        Loss::ProcessesUnreached => bad(
            "times, probes could not reach a process, or a library that it loaded later",
            "raise the limit of open files (ulimit -n), or start tracing again",
        ),
        Loss::DutyCycleFailed => bad(
            "times, processes could not be paused or continued",
            "limit less with --max-overhead",
        ),
    }
}

fn note_words(note: Note) -> Words {
    match note {
        Note::AllocatorsProbedLate => bad(
            "allocators were found after they were loaded: their calls before that are missing",
            "",
        ),
        Note::ChildrenProbedLate => bad(
            "child processes may have been traced from shortly after their start only",
            "Linux 6.12 or newer traces them from the start",
        ),
        Note::BlocksNotKept => bad(
            "blocks are not in the list of blocks, because too many were allocated at once",
            "record less with --sample, or leave out --events",
        ),
        Note::CodeMappingsNotKept => {
            harmless("parts of code have no names, because a program has too many of them")
        }
        Note::ExceededUnlisted => harmless(
            "times, live memory exceeded a limit and is not listed, because there were too many",
        ),
        Note::JavaFramesNotKept => {
            harmless("stacks have no Java methods, because there were too many different ones")
        }
        Note::JavaScriptFramesNotKept => harmless(
            "stacks have no functions of JavaScript, because there were too many different ones",
        ),
        Note::JavaScriptFramesUnnamed => harmless(
            "frames of JavaScript have no name: it was gone before heaptrace could read it",
        ),
        Note::MapPartsNotKept => harmless(
            "parts of memory that programs mapped are not in memory maps, because there were too many",
        ),
        Note::MarksWithoutRoom => bad(
            "marks or allocations are in no generation, because there were too many: generations show too little",
            "make marks less often, or record less with --sample",
        ),
        Note::PythonFramesNotKept => {
            harmless("stacks have no Python functions, because there were too many different ones")
        }
        Note::FilesForgotten => harmless("files will be searched for allocators again"),
        Note::FilesGoneUnseen => {
            harmless("files were gone before they could be searched for allocators")
        }
        Note::FilesNotLookedInto => harmless("files were not searched for allocators in time"),
        Note::FilesRefused => bad(
            "files with an allocator could not be probed: its allocations are missing",
            "heaptrace doctor --pid PID says why",
        ),
        Note::FilesUnprobedUnnamed => bad(
            "more files are not probed than the list above has room for",
            "",
        ),
        Note::FilesUnreadable => harmless("files could not be read"),
        Note::JitFilesRefused => {
            harmless("files with names of generated code (perf maps, jitdump) were not read")
        }
        Note::JitFramesUnnamed => harmless("frames in generated code have no name"),
        Note::JitFunctionsNotKept => {
            harmless("functions of generated code were not kept, because there were too many")
        }
        Note::JitNamesBroken => {
            harmless("lines of files with names of generated code could not be read")
        }
        Note::JavaFramesUnnamed => harmless("frames of Java code have no names"),
        Note::MemoryNotRead => harmless(
            "processes have no memory map: too many had recorded blocks, or their memory could not be read",
        ),
        Note::ProcessesFast => harmless("processes were on the fast path (--fast)"),
        Note::ProcessesNotFast => bad(
            "processes could not be moved to the fast path (--fast): each of their calls costs a trap",
            "heaptrace doctor --pid PID says why",
        ),
        Note::ProcessesNotRead => bad(
            "processes are not traced, because their mappings could not be read",
            "heaptrace doctor --pid PID says why",
        ),
        Note::ProcessesReached => harmless("processes were traced, once they had run for a second"),
        Note::ProcessesShortLived => harmless("processes ended before they were traced"),
        Note::RateChangesUnlisted => harmless("changes of the sampling rate are not listed"),
        Note::RatesRefused => harmless("processes share the common sampling rate"),
        Note::SuddenEndsMerged => harmless(
            "processes that crashed or were killed are in the sum of the ended processes of their name",
        ),
        Note::StacksWalkedLate => harmless("stacks were followed once an unwind table was ready"),
        Note::UnwindFunctionsDamaged => {
            harmless("functions have damaged unwind information, where stacks may end early")
        }
        Note::UnwindTablesCached => harmless("unwind tables were read from the cache"),
        Note::UnwindTablesDelayed => harmless("unwind tables came later than they were needed"),
        Note::UnwindTablesEvicted => {
            harmless("unwind tables were removed to make room (--max-table-memory)")
        }
        Note::UnwindTablesRefused => harmless("unwind tables found no room (--max-table-memory)"),
    }
}

fn counter_words(counter: Counter) -> Words {
    match counter {
        Counter::RingFull => bad(
            "allocations are missing, because heaptrace could not read events fast enough",
            "raise --ring-size, or record less with --sample",
        ),
        Counter::LiveMapFull => bad(
            "allocations are missing, because too many blocks were live at a time",
            "raise --max-live or --max-memory, or record less with --sample",
        ),
        Counter::ThreadMapFull => bad(
            "allocations are missing, because too many threads allocated at a time",
            MORE_MEMORY,
        ),
        Counter::ProcessMapFull => bad(
            "calls are missing, because too many processes ran at a time",
            MORE_MEMORY,
        ),
        Counter::ResultUnreadable => bad(
            "allocations are missing, because the address of their block could not be read",
            "",
        ),
        Counter::FreesMarked => harmless("frees came late, through the live map"),
        Counter::StackMapFull => harmless("stacks were sent more than once"),
        Counter::NestedCalls => {
            harmless("calls between allocator functions were counted once, as they should")
        }
        Counter::AbandonedCalls => harmless("allocator calls were left by longjmp or an exception"),
        Counter::EndsMarked => harmless("ends of processes came late"),
        Counter::FreesLost => bad(
            "frees were lost: their blocks count as live",
            "raise --ring-size, or record less with --sample",
        ),
        Counter::ShortLivedUnnamed => {
            harmless("processes that ended before they were traced are not named")
        }
        Counter::PythonFramesLost => Words {
            matters: false,
            ..bad(
                "stacks have no Python functions, because heaptrace could not read events fast enough",
                "raise --ring-size, or record less with --sample",
            )
        },
        Counter::V8FramesLost => Words {
            matters: false,
            ..bad(
                "stacks have no functions of JavaScript, because heaptrace could not read events fast enough",
                "raise --ring-size, or record less with --sample",
            )
        },
        Counter::JavaFramesLost => Words {
            matters: false,
            ..bad(
                "stacks have no Java methods, because heaptrace could not read events fast enough",
                "raise --ring-size, or record less with --sample",
            )
        },
        Counter::RawStacksDropped => harmless(
            "stacks ended early, because there was no room to keep them until an unwind table was ready",
        ),
        Counter::EndsLost => bad(
            "ends of processes were lost: the processes count as running",
            "raise --ring-size, or record less with --sample",
        ),
    }
}

/// The words for stacks whose walk ended early, by the name of the reason.
fn broken_stack(reason: &str) -> Words {
    let what = match reason {
        "unmapped" => "stacks end where no code is",
        "no_table_yet" => "stacks end in a file whose unwind table was not ready yet",
        "mappings_busy" => "stacks end early, because their process was changing its mappings",
        "unreadable" => "stacks end where memory could not be read",
        "no_unwind_information" => "stacks end in code without unwind information",
        "unsupported_rule" => "stacks end in code with unwind information of an unusual kind",
        "misread" => "stacks end early, because a frame was misread",
        "lost_frame_pointer" => "stacks end in code that needs a frame pointer which was not kept",
        _ => "stacks end early",
    };
    harmless(what)
}

#[cfg(test)]
mod tests {
    use heaptrace_common::unwind::outcome;
    use heaptrace_common::wire::walk;

    use super::*;

    /// Names of all reasons why a walk ends early.
    fn walks() -> impl Iterator<Item = &'static str> {
        (walk::UNMAPPED..walk::STEP + outcome::COUNT).map(walk::name)
    }

    /// Check that every reason that a report can have is told in words, and that none of them is an internal
    /// name.
    #[test]
    fn every_reason_has_words() {
        let losses = Loss::ALL.iter().map(|it| it.name());
        let notes = Note::ALL.iter().map(|it| it.name());
        let (lost, noted): (Vec<&Counter>, Vec<&Counter>) =
            Counter::ALL.iter().partition(|it| it.is_loss());
        let broken = walks().map(|name| format!("stack_broken_{name}"));
        let all_lost: Vec<String> = losses
            .chain(lost.iter().map(|it| it.name()))
            .map(str::to_owned)
            .collect();
        let all_noted: Vec<String> = notes
            .chain(noted.iter().map(|it| it.name()))
            .map(str::to_owned)
            .chain(broken)
            .collect();
        for (names, words) in [
            (all_lost, of_lost as fn(&str) -> Option<Words>),
            (all_noted, of_noted),
        ] {
            for name in names {
                let found = words(&name).unwrap();
                assert!(
                    found.what.contains(' ') && !found.what.contains('_'),
                    "{name}: {found:?}"
                );
            }
        }
        for loss in Loss::ALL {
            assert!(loss_words(*loss).matters, "{loss:?}");
        }
        let unknown = walks().filter(|name| *name != "unknown");
        for name in unknown {
            assert_ne!(broken_stack(name), broken_stack("no such reason"), "{name}");
        }
        assert_eq!(
            (of_lost("no such reason"), of_noted("no such reason")),
            (None, None)
        );
    }
}
