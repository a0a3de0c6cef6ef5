//! Allocations and frees, and the entries of the live map.

/// Bits of the flags of [`Alloc`] and [`Free`].
pub mod flag {
    /// The freed block was the last one that this thread allocated.
    pub const TEMPORARY: u16 = 1;
}

/// A successful allocation or reallocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Alloc {
    /// [`kind::ALLOC`](super::kind::ALLOC).
    pub kind: u16,
    /// [`flag`] bits, of the block named by `freed`.
    pub flags: u16,
    /// The calling thread.
    pub tid: u32,
    /// When it returned, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the new block.
    pub id: u64,
    /// Id of the stack.
    pub stack: u64,
    /// Address of the block.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// Id of the block that realloc replaced by this one, 0 if none.
    pub freed: u64,
    /// Id of a block at this address whose free was not seen, 0 if none.
    pub replaced: u64,
    /// Mean bytes between samples that it was sampled under; 1 if all calls are recorded.
    pub mean: u64,
}

/// A free of a recorded block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Free {
    /// [`kind::FREE`](super::kind::FREE).
    pub kind: u16,
    /// [`flag`] bits.
    pub flags: u16,
    /// The calling thread.
    pub tid: u32,
    /// When, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the block.
    pub id: u64,
}

/// Key of the live map. Each process has addresses of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct BlockKey {
    /// Address of the block.
    pub address: u64,
    /// Serial number of the process record.
    pub process: u64,
}

/// Value of the live map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Block {
    /// Id of the block, never 0 and never reused.
    pub id: u64,
    /// Requested bytes.
    pub size: u64,
    /// 0 while the block is live. Otherwise when it was freed by a call whose event did not fit into the
    /// ring; the agent sweeps such entries.
    pub freed_at: u64,
    /// One more than the index of the hint array that has its address; 0 if none has. See [`crate::hints`].
    pub hint: u64,
}

const _: () = {
    assert!(size_of::<Alloc>() == 80);
    assert!(size_of::<Free>() == 32);
    assert!(size_of::<BlockKey>() == 16);
    assert!(size_of::<Block>() == 32);
};
