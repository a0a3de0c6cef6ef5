//! The reasons why the agent drops something, and the kinds of events that it counts, each with its one name.
//!
//! Stage: join. The names stand in reports and in data files, so they never change. The kernel program has
//! counters of its own ([`Counter`](heaptrace_common::counters::Counter)). Knows nothing of the counts.

use heaptrace_common::wire::walk;

macro_rules! reasons {
    (
        $(#[$type_doc:meta])*
        $type:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal;)+
        }
    ) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$doc])* $variant,)+
        }

        impl $type {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in reports and data files.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

reasons! {
    /// Why allocations may be missing from the totals, or why a number may be wrong.
    Loss {
        /// An event that names a process or a stack whose own event did not arrive.
        Unjoined = "unjoined";
        /// A live block that was joined as freed: it was allocated at the address of a block whose free was
        /// swept.
        SweptLive = "swept_live";
        /// A mapping that was not recorded: the join keeps a limited number of parts of mappings.
        MappingsFull = "mappings_full";
        /// A record of the kernel program's ring that could not be decoded.
        Undecoded = "undecoded";
        /// A record of the ring that was not written in time, so that later ones could not be read.
        Unread = "unread";
        /// A record of a mapping, fork, exec or exit that found no room in perf's rings.
        Sideband = "sideband";
        /// A child that could not be tied to probes of its own, or a record of a fork or exit that was lost
        /// (before Linux 6.12).
        Births = "births";
        /// A mapped file that was not searched for allocators: the queues of files were full.
        Files = "files";
        /// A process that the probes of a late file could not reach.
        ProcessesUnreached = "processes_unreached";
        /// A failed attempt to pause or resume processes.
        DutyCycleFailed = "turns_failed";
    }
}

reasons! {
    /// Events that are worth knowing, but take no allocation out of the totals.
    Note {
        /// A file that was probed during the run: its calls before that were not seen.
        AllocatorsProbedLate = "allocators_probed_late";
        /// A block that was not kept by itself for lack of room, in a run that keeps each block.
        BlocksNotKept = "blocks_not_kept";
        /// A child that may have missed calls before it was tied to probes of its own (before Linux 6.12).
        ChildrenProbedLate = "children_probed_late";
        /// An executable mapping that was not kept: its program image had too many. Addresses in it have no
        /// names.
        CodeMappingsNotKept = "code_mappings_not_kept";
        /// A process or control group that exceeded a limit of live memory, and is not listed: there are too many.
        ExceededUnlisted = "exceeded_unlisted";
        /// A file that was forgotten to make room, and is searched again when it is mapped again.
        FilesForgotten = "files_forgotten";
        /// A file that was gone, or could not be opened, before it could be searched for allocators.
        FilesGoneUnseen = "files_gone_unseen";
        /// A file that was not searched for allocators: it was still waiting, or the queues of files were full.
        FilesNotLookedInto = "files_not_looked_into";
        /// A file with an allocator that could not be probed.
        FilesRefused = "files_refused";
        /// A file that is not probed, and that the report does not name: its owner has filled the list.
        FilesUnprobedUnnamed = "files_unprobed_unnamed";
        /// A file that no reader could read.
        FilesUnreadable = "files_unreadable";
        /// A stack of Java whose frames were not kept for lack of room.
        JavaFramesNotKept = "java_frames_not_kept";
        /// A Java frame whose name could not be read from its process.
        JavaFramesUnnamed = "java_frames_unnamed";
        /// A stack of JavaScript whose frames were not kept for lack of room.
        JavaScriptFramesNotKept = "javascript_frames_not_kept";
        /// A frame of JavaScript whose function could not be read: it was moved or freed before, or there was no time.
        JavaScriptFramesUnnamed = "javascript_frames_unnamed";
        /// A file with names of generated code that was not read.
        JitFilesRefused = "jit_files_refused";
        /// A frame in code without a file that has no name.
        JitFramesUnnamed = "jit_frames_unnamed";
        /// A function of generated code that was not kept for lack of room.
        JitFunctionsNotKept = "jit_functions_not_kept";
        /// A line or a record that is not valid, in a file with names of generated code.
        JitNamesBroken = "jit_names_broken";
        /// A part of memory that a program had mapped itself, and that found no room in its memory map when that was read last.
        MapPartsNotKept = "map_parts_not_kept";
        /// A mark that was not made, or an allocation since a mark that is counted in no generation, for lack of room.
        MarksWithoutRoom = "marks_without_room";
        /// A process with recorded blocks whose memory was never read, in a run that keeps each block: there were too many, or it could
        /// not be read.
        MemoryNotRead = "memory_not_read";
        /// A process that was moved to the fast path.
        ProcessesFast = "processes_fast";
        /// A process that could not be moved to the fast path.
        ProcessesNotFast = "processes_not_fast";
        /// A process whose mappings could not be read when the run began.
        ProcessesNotRead = "processes_not_read";
        /// A process that the probes reached, in a run that reaches processes one by one.
        ProcessesReached = "processes_reached";
        /// A process that ended before the probes reached it.
        ProcessesShortLived = "processes_short_lived";
        /// A Python stack whose frames were not kept for lack of room.
        PythonFramesNotKept = "python_frames_not_kept";
        /// A change of the sampling rate that the report does not list: there are too many.
        RateChangesUnlisted = "rate_changes_unlisted";
        /// A process that got no sampling rate of its own, and keeps the common one.
        RatesRefused = "rates_refused";
        /// A stack that was walked to its end when an unwind table was ready.
        StacksWalkedLate = "stacks_walked_late";
        /// A process that crashed or was killed, and whose record was merged with those of others.
        SuddenEndsMerged = "sudden_ends_merged";
        /// A function whose unwind information is damaged, or exceeds a limit.
        UnwindFunctionsDamaged = "unwind_functions_damaged";
        /// An unwind table that was read from the cache on disk.
        UnwindTablesCached = "unwind_tables_cached";
        /// A file that found the queue of unwind tables full: its table is asked for again.
        UnwindTablesDelayed = "unwind_tables_delayed";
        /// An unwind table that was removed to make room for another one.
        UnwindTablesEvicted = "unwind_tables_evicted";
        /// A file for whose unwind table there was no room.
        UnwindTablesRefused = "unwind_tables_refused";
    }
}

/// The name under which samples with a broken stack are counted, by how the walk ended.
pub(super) fn broken_stack(walk: u32) -> String {
    format!("stack_broken_{}", walk::name(walk))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use heaptrace_common::counters::Counter;

    use super::*;

    /// Check that no two reasons have the same name, counters of the kernel program and broken stacks included.
    #[test]
    fn names_are_unique() {
        let losses = Loss::ALL.iter().map(|it| it.name());
        let notes = Note::ALL.iter().map(|it| it.name());
        let counters = Counter::ALL.iter().map(|it| it.name());
        let names: Vec<_> = losses.chain(notes).chain(counters).collect();
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        for walk in 0..64 {
            assert!(!unique.contains(&broken_stack(walk).as_str()));
        }
    }
}
