//! The state of a thread: its pending call, and the slots that calls share.

use super::{Block, Stack, WalkState};
use crate::limits::NESTED_ALLOCATORS;

/// Value of the thread map, by process and thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadState {
    /// Stack pointer at the entry of the pending call, 0 if none is pending.
    pub sp: u64,
    /// Requested bytes of the pending call.
    pub size: u64,
    /// The pointer that was passed to realloc, or the address where `posix_memalign` stores its result.
    pub pointer: u64,
    /// A constant of [`call`].
    pub call: u32,
    /// How many of `codes` are set.
    pub codes_set: u32,
    /// Mean bytes between samples that the pending call was sampled under; 1 if all calls are recorded; 0 if
    /// only the block that it may free is recorded.
    pub mean: u64,
    /// The block that the pending call has returned already, to the fast path's code; 0 if it has not returned.
    pub returned: u64,
    /// The block that realloc took out of the live map; its id is 0 if there is none.
    pub old_block: Block,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the last block that this thread allocated.
    pub last_block: u64,
    /// Return address of the pending call, if it has no return probe; else 0.
    pub return_address: u64,
    /// The address that this thread freed last; 0 if it has allocated since.
    pub last_freed: u64,
    /// Stack pointer at the entry of the call that freed it.
    pub last_free_sp: u64,
    /// The kernel program's call mark when that last block was allocated.
    pub last_block_mark: u64,
    /// The mark that the fast path's code passed with the pending call; 0 if the call did not come from there.
    pub fast_mark: u64,
    /// The code of the allocator that the thread called last, and of those that were called from inside of that
    /// call.
    pub codes: [CodeRange; NESTED_ALLOCATORS],
    /// Stack of the pending call.
    pub stack: Stack,
    /// State of the walk up that stack.
    pub walk: WalkState,
}

/// A range of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CodeRange {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
}

impl CodeRange {
    /// Whether an address is in it.
    #[inline(always)]
    pub const fn contains(self, address: u64) -> bool {
        address >= self.start && address < self.end
    }
}

/// Kinds of pending calls.
pub mod call {
    /// Returns the block.
    pub const ALLOC: u32 = 1;
    /// Returns 0, and stores the block's address.
    pub const POSIX_MEMALIGN: u32 = 2;
    /// Returns the block, and frees another one.
    pub const REALLOC: u32 = 3;
    /// As `ALLOC`, with a product of sizes that overflows: the call can only fail.
    pub const OVERFLOW: u32 = 4;
    /// As `REALLOC`, and frees the old block if it fails.
    pub const REALLOC_OR_FREE: u32 = 5;
    /// Returns the size of a block, which it may have resized in place.
    pub const RESIZE: u32 = 6;

    /// Whether a call replaces one block by another.
    #[inline(always)]
    pub const fn is_reallocation(call: u32) -> bool {
        matches!(call, REALLOC | REALLOC_OR_FREE | RESIZE)
    }
}

/// Value of the counting filter of calls: the calls whose stack pointers at their entry share a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CallSlot {
    /// Number of pending calls.
    pub pending: u64,
    /// Stack pointer of the call that was entered last; 0 if it has returned.
    pub entered: u64,
}

/// A call that the sampling declined, and that has no return probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DeclinedCall {
    /// Process and thread id.
    pub thread: u64,
    /// Stack pointer at its entry; 0 if there is no call.
    pub sp: u64,
    /// Its return address.
    pub return_address: u64,
    /// The code of its allocator.
    pub code: CodeRange,
}

const _: () = {
    let before_stack = 136 + NESTED_ALLOCATORS * size_of::<CodeRange>();
    assert!(size_of::<ThreadState>() == before_stack + size_of::<Stack>() + size_of::<WalkState>());
    assert!(core::mem::offset_of!(ThreadState, stack) == before_stack);
};
