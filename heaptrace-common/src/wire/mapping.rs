//! Memory that processes map themselves: what crosses when it changes.

/// A change of what a process has mapped, by a call that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MapChange {
    /// [`kind::MAP_CHANGE`](super::kind::MAP_CHANGE).
    pub kind: u16,
    /// [`map_flag`] bits.
    pub flags: u16,
    /// Thread that called.
    pub tid: u32,
    /// When it was called, nanoseconds on the monotonic clock. What it gave back had been mapped
    /// before; what is mapped there since is not meant.
    pub asked: u64,
    /// When it had returned.
    pub time: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the stack; 0 where nothing new is to be recorded.
    pub stack: u64,
    /// Address of what is mapped now.
    pub start: u64,
    /// Its length in bytes, whole pages; 0 where nothing is.
    pub length: u64,
    /// Address of what was given back.
    pub old_start: u64,
    /// Its length in bytes, whole pages; 0 where nothing was.
    pub old_length: u64,
}

/// Bits of the flags of [`MapChange`] and [`MapCall`].
pub mod map_flag {
    /// What is mapped now is to be recorded.
    pub const RECORDED: u16 = 1;
    /// It is recorded only if what was given back was.
    pub const MOVED: u16 = 2;
    /// It may stand where something else stood.
    pub const REPLACES: u16 = 4;
    /// The stack found no place in the ring.
    pub const NO_STACK: u16 = 8;
}

/// Value of the map of pending calls that change mappings, by process and thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MapCall {
    /// Stack pointer at its entry.
    pub sp: u64,
    /// When that was.
    pub asked: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the stack, 0 if none was taken.
    pub stack: u64,
    /// Bytes that it maps, whole pages.
    pub length: u64,
    /// Address of what it gives back.
    pub old_start: u64,
    /// Bytes of that, whole pages.
    pub old_length: u64,
    /// [`map_flag`] bits.
    pub flags: u64,
}

/// Something that was unmapped by a call whose event found no place in the ring; the agent sweeps it.
/// Value of a map, by an id of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Unmapped {
    /// Serial number of the process record.
    pub process: u64,
    /// Its address.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What was mapped before this time is meant.
    pub before: u64,
}

/// Entries of the map of [`Unmapped`].
pub const MAX_UNMAPPED: u32 = 1 << 16;

const _: () = {
    assert!(size_of::<MapChange>() == 72);
    assert!(size_of::<MapCall>() == 64);
    assert!(size_of::<Unmapped>() == 32);
};
