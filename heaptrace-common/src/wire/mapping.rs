//! Memory that processes map themselves (`--mmap`): changes, pending calls, and unsent changes.

/// A change of a process's mappings by a successful call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MapChange {
    /// [`kind::MAP_CHANGE`](super::kind::MAP_CHANGE).
    pub kind: u16,
    /// [`map_flag`] bits.
    pub flags: u16,
    /// The calling thread.
    pub tid: u32,
    /// When it was called, nanoseconds on the monotonic clock. It unmapped only memory that was mapped before
    /// this time.
    pub entered: u64,
    /// When it returned.
    pub time: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the stack; 0 if no new mapping is recorded.
    pub stack: u64,
    /// Address of the new mapping.
    pub start: u64,
    /// Its length in bytes, whole pages; 0 if there is none.
    pub length: u64,
    /// Address of the unmapped memory.
    pub old_start: u64,
    /// Its length in bytes, whole pages; 0 if there is none.
    pub old_length: u64,
}

/// Bits of the flags of [`MapChange`] and [`MapCall`].
pub mod map_flag {
    /// The new mapping is recorded.
    pub const RECORDED: u16 = 1;
    /// It is recorded only if the unmapped memory was recorded.
    pub const MOVED: u16 = 2;
    /// It may replace other memory at its address.
    pub const REPLACES: u16 = 4;
    /// The stack did not fit into the ring.
    pub const NO_STACK: u16 = 8;
}

/// Value of the map of pending calls that change mappings, by process and thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MapCall {
    /// Stack pointer at its entry.
    pub sp: u64,
    /// Time of its entry.
    pub entered: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the stack, 0 if none was captured.
    pub stack: u64,
    /// Length of the memory that it maps, whole pages.
    pub length: u64,
    /// Address of the memory that it unmaps.
    pub old_start: u64,
    /// Length of that memory, whole pages.
    pub old_length: u64,
    /// [`map_flag`] bits.
    pub flags: u64,
}

/// Memory that was unmapped by a call whose event did not fit into the ring; the agent sweeps it. Value of a
/// map, under an id of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Unmapped {
    /// Serial number of the process record.
    pub process: u64,
    /// Its address.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Only memory that was mapped before this time was unmapped.
    pub before: u64,
}

/// Maximum number of entries of the map of [`Unmapped`].
pub const MAX_UNMAPPED: u32 = 1 << 16;

const _: () = {
    assert!(size_of::<MapChange>() == 72);
    assert!(size_of::<MapCall>() == 64);
    assert!(size_of::<Unmapped>() == 32);
};
