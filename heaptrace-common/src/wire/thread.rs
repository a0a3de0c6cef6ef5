//! The memory that a thread owns in the kernel: its pending call, and where a walk up its stack is.

use super::{Block, FileKey, Stack, TableRef};
use crate::limits::{MAPPINGS_SEEN, MAX_FRAMES};
use crate::unwind::Registers;

/// Value of the thread map, by process and thread id: the memory that a thread owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadState {
    /// Stack pointer at the entry of the pending call, 0 if none is pending.
    pub sp: u64,
    /// Requested bytes of the pending call.
    pub size: u64,
    /// The pointer that was passed to realloc, or that `posix_memalign` stores its result to.
    pub pointer: u64,
    /// One of [`call`].
    pub call: u32,
    /// Zero.
    pub pad: u32,
    /// Mean bytes between samples that the pending call was taken under, 1 where all are taken, 0
    /// where only the block that it may free is of interest.
    pub mean: u64,
    /// The block that realloc took out of the live map; its id is 0 if there was none.
    pub taken: Block,
    /// Serial number of the process record.
    pub process: u64,
    /// Id of the last block that this thread allocated.
    pub last_id: u64,
    /// Where the pending call returns to, if it has no return probe; else 0.
    pub returns_to: u64,
    /// The address that this thread freed last, 0 once it has allocated since.
    pub freed: u64,
    /// What the kernel program marked that moment by.
    pub last_mark: u64,
    /// Stack of the pending call, ready to be sent.
    pub stack: Stack,
    /// Where the walk up that stack is.
    pub walk: WalkState,
}

/// What is known of calls whose stack pointers at their entry share a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CallPlace {
    /// How many calls are pending.
    pub pending: u64,
    /// Stack pointer of the call that was entered last, 0 once it has returned.
    pub entered: u64,
}

/// A call that was decided about, and is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Decided {
    /// Process and thread id.
    pub thread: u64,
    /// Stack pointer at its entry; 0 where there is none.
    pub sp: u64,
    /// Where it returns to.
    pub returns_to: u64,
}

/// A walk up a stack under way. It is in a map, because of what stands on a program's own stack the verifier follows each
/// value, and would go through the walk's loop once for every combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct WalkState {
    /// Those of the frame at hand.
    pub registers: Registers,
    /// The mapping that the last frame stood in.
    pub mapping: Mapping,
    /// The table of its file.
    pub table: TableRef,
    /// First row that the search for the frame's rule has left.
    pub low: u32,
    /// The row behind the last one that it has left.
    pub high: u32,
    /// The offset in its page that is searched for.
    pub offset: u32,
    /// 1 where the address is that of a return, and the call stands before it.
    pub before: u32,
    /// Which of the mappings below is the next to be overwritten.
    pub next_seen: u64,
    /// Mappings that this thread's walks went through last.
    pub seen: [Mapping; MAPPINGS_SEEN],
    /// Which of these were seen since the address space last changed, a bit each.
    pub current: u64,
    /// The kernel's record of the address space, by its address.
    pub space: u64,
    /// What that counts up with each change.
    pub version: u64,
    /// Part of the thread's stack.
    pub window: StackWindow,
    /// What the walk has come by, and the last one where this one hasn't been yet.
    pub trail: Trail,
}

/// What a walk to the outermost frame came by: what each step has read. Frames are those of the thread's [`Stack`], and places
/// are counted in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Trail {
    /// The address that places are counted from.
    pub base: u64,
    /// What the clock of the unwind tables said.
    pub clock: u64,
    /// Frames that the last walk came by, 0 if it left no trail.
    pub known: u32,
    /// The first of them from which on all that was read is noted.
    pub known_from: u32,
    /// The same of the walk under way.
    pub from: u32,
    /// 1 where that came to an outermost frame, by what is noted alone.
    pub is_whole: u32,
    /// The frame from which on the stack turned out to be that of the last walk; [`MAX_FRAMES`] if none did.
    pub same: u32,
    /// The frame that is to be compared next.
    pub next: u32,
    /// Where the last step has read the frame pointer: a place, or a constant of [`saved`].
    pub saved: u32,
    /// Zero.
    pub pad: u32,
    /// Stack pointers.
    pub sp: [u16; MAX_FRAMES],
    /// Where the frame pointers were read from: places, or [`saved::NOWHERE`].
    pub saved_at: [u16; MAX_FRAMES],
    /// Frame pointers.
    pub bp: [u64; MAX_FRAMES],
}

/// Where a frame pointer was read from, if that is no place.
pub mod saved {
    /// It was not read: it is that of the frame before, or lost.
    pub const NOWHERE: u32 = 0xffff;
    /// The step has read something else, or where no place is.
    pub const UNKNOWN: u32 = 0x1_0000;
}

/// Slots of a [`StackWindow`]; a power of two.
pub const WINDOW_SLOTS: usize = 64;

/// A copy of part of a stack: most of what a walk reads lies close together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StackWindow {
    /// Address of the first slot; [`NO_WINDOW`] if there is none.
    pub start: u64,
    /// What stands there.
    pub slots: [u64; WINDOW_SLOTS],
}

/// An address that no stack has.
pub const NO_WINDOW: u64 = u64::MAX;

/// What is mapped at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The file; all zero where there is none.
    pub file: FileKey,
}
