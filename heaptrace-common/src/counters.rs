//! Counters that the kernel program keeps per CPU, each with its one name.

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $index:literal, $name:literal, $lost:literal;)+) => {
        /// What the kernel program counts. The discriminant is the slot in the per-CPU array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Counter {
            $($(#[$doc])* $variant = $index,)+
        }

        impl Counter {
            /// All of them, in the order of their slots.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Whether each count is an allocation (or all that a process did) missing from the
            /// totals, as opposed to an event worth knowing that cost nothing.
            pub const fn is_loss(self) -> bool {
                match self { $(Self::$variant => $lost,)+ }
            }
        }
    };
}

counters! {
    /// An allocation whose event found no place in the ring.
    RingFull = 0, "ring_full", true;
    /// An allocation for which the live map had no place.
    LiveMapFull = 1, "live_map_full", true;
    /// A call of a thread for which the thread map had no place.
    ThreadMapFull = 2, "thread_map_full", true;
    /// A call of a process for which the process map had no place.
    ProcessMapFull = 3, "process_map_full", true;
    /// The address that `posix_memalign` stored could not be read.
    ResultUnreadable = 4, "result_unreadable", true;
    /// A free whose event found no place in the ring; its block was marked, to be swept.
    FreesMarked = 5, "frees_marked", false;
    /// A stack that could not be remembered as sent, and so is sent again each time.
    StackMapFull = 6, "stack_map_full", false;
    /// A call inside another allocator call, which counts alone.
    NestedCalls = 7, "nested_calls", false;
    /// A call that was left by longjmp or an exception.
    AbandonedCalls = 8, "abandoned_calls", false;
    /// A process end whose event found no place in the ring; it was kept, to be swept.
    EndsMarked = 9, "ends_marked", false;
    /// A free that could neither be sent nor kept: its block stands as live.
    FreesLost = 10, "frees_lost", true;
    /// A process end that could not even be kept; the process stands as running.
    EndsLost = 11, "ends_lost", true;
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
