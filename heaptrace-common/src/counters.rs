//! Counters that the kernel program keeps per CPU, and their names in reports.

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $index:literal, $name:literal, $lost:literal;)+) => {
        /// A counter of the kernel program. The discriminant is the slot in the per-CPU array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Counter {
            $($(#[$doc])* $variant = $index,)+
        }

        impl Counter {
            /// All counters, in the order of their slots.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Whether each count is an allocation, or all events of a process, that is missing from the
            /// totals. Otherwise the event lost nothing.
            pub const fn is_loss(self) -> bool {
                match self { $(Self::$variant => $lost,)+ }
            }
        }
    };
}

counters! {
    /// An allocation whose event did not fit into the ring.
    RingFull = 0, "ring_full", true;
    /// An allocation that did not fit into the live map.
    LiveMapFull = 1, "live_map_full", true;
    /// A call of a thread that did not fit into the thread map.
    ThreadMapFull = 2, "thread_map_full", true;
    /// A call of a process that did not fit into the process map.
    ProcessMapFull = 3, "process_map_full", true;
    /// The address that `posix_memalign` stored could not be read.
    ResultUnreadable = 4, "result_unreadable", true;
    /// A free whose event did not fit into the ring; its block is marked for the agent's sweep.
    FreesMarked = 5, "frees_marked", false;
    /// A stack that could not be remembered as sent, and is sent again each time.
    StackMapFull = 6, "stack_map_full", false;
    /// A call inside another allocator call; only the outer call is recorded.
    NestedCalls = 7, "nested_calls", false;
    /// A call that was left by longjmp or an exception.
    AbandonedCalls = 8, "abandoned_calls", false;
    /// A process end whose event did not fit into the ring; it is kept for the agent's sweep.
    EndsMarked = 9, "ends_marked", false;
    /// A free that could be neither sent nor kept: its block is reported as live.
    FreesLost = 10, "frees_lost", true;
    /// A process end that could be neither sent nor kept: the process is reported as running.
    EndsLost = 11, "ends_lost", true;
    /// A process that ended before it was reached, and whose name and control group found no room.
    ShortLivedUnnamed = 12, "short_lived_unnamed", false;
    /// A stack whose Python frames did not fit into the ring, and that is recorded without them.
    PythonFramesLost = 13, "python_frames_lost", false;
    /// A stack that is incomplete for want of a table, and for whose words there was no room.
    RawStacksDropped = 14, "raw_stacks_dropped", false;
    /// A stack whose frames of JavaScript did not fit into the ring, and that is recorded without them.
    V8FramesLost = 15, "javascript_frames_lost", false;
    /// A stack whose Java frames did not fit into the ring, and that is recorded without them.
    JavaFramesLost = 16, "java_frames_lost", false;
}

/// Number of counters.
pub const COUNTERS: usize = Counter::ALL.len();

const _: () = {
    let mut slot = 0;
    while slot < COUNTERS {
        assert!(
            Counter::ALL[slot] as usize == slot,
            "slots must be dense and in order"
        );
        slot += 1;
    }
};
