//! The state of a walk up a stack, and what a thread's walks cache.

use super::{FileKey, TableRef};
use crate::limits::{CACHED_MAPPINGS, MAX_FRAMES};
use crate::unwind::Registers;

/// State of a walk. It is in a map, because the verifier tracks each value on a program's own stack, and
/// would check the walk's loop once for every combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct WalkState {
    /// Registers of the current frame.
    pub registers: Registers,
    /// The mapping of the last frame's code.
    pub mapping: Mapping,
    /// The table of the mapping's file.
    pub table: TableRef,
    /// First row of the range that the search for the rule has narrowed down to.
    pub low: u32,
    /// The row after the last row of that range.
    pub high: u32,
    /// The offset in its page that the search looks for.
    pub offset: u32,
    /// 1 if the frame's address is a return address, so that the call is before it; else 0.
    pub is_return_address: u32,
    /// Index of the cached mapping that is overwritten next.
    pub next_cached: u64,
    /// Mappings that this thread's walks went through last.
    pub cached: [Mapping; CACHED_MAPPINGS],
    /// One bit for each of these: whether it was looked up since the address space last changed.
    pub is_current: u64,
    /// Address of the kernel's record of the address space (`mm_struct`).
    pub space: u64,
    /// The kernel's count of changes to the address space.
    pub space_version: u64,
    /// Address from which a Python interpreter's relative addresses are counted.
    pub python_base: u64,
    /// One more than the index of that interpreter's [`PythonImage`](super::PythonImage); 0 if no walk of the thread has met one.
    pub python_image: u16,
    /// One more than the index of the [`V8Image`](super::V8Image) that a walk of the thread has met; 0 if none has.
    pub v8_image: u16,
    /// What else the thread has: bits of [`has`].
    pub has: u32,
    /// A piece of the thread's stack.
    pub window: StackWindow,
    /// The words that this walk has read, and those of the last walk for frames that this walk has not reached.
    pub cache: WalkCache,
}

/// States that few threads have, in maps of their own.
pub mod has {
    /// A [`RawWalk`](crate::wire::RawWalk).
    pub const RAW_WALK: u32 = 1;
    /// A [`JavaStack`](crate::wire::JavaStack).
    pub const JAVA_STACK: u32 = 2;
}

/// The walk cache: the words that each step of a walk has read. Frames are indexes in the thread's [`Stack`].
/// A slot is the position of a word of the stack, counted in words from the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct WalkCache {
    /// The address that slots are counted from.
    pub base: u64,
    /// The clock of the unwind tables at this walk.
    pub clock: u64,
    /// Number of frames of the last walk; 0 if it left no valid cache.
    pub depth: u32,
    /// The first frame of the last walk that can be compared: from it on, all words that were read are
    /// recorded.
    pub valid_from: u32,
    /// The same for the walk in progress.
    pub recorded_from: u32,
    /// 1 if the walk in progress reached an outermost frame, and all words that it read for that are recorded.
    pub is_complete: u32,
    /// The first frame from which on the stack is the last walk's; [`MAX_FRAMES`] if there is none.
    pub matched_from: u32,
    /// The frame to compare next.
    pub next: u32,
    /// Where the last step read the frame pointer: a slot, or a constant of [`slot`].
    pub bp_slot: u32,
    /// 1 if a rule led to the current frame, 0 if a frame pointer did.
    pub is_by_rule: u32,
    /// The slots that the stack pointers point to.
    pub sp_slots: [u16; MAX_FRAMES],
    /// The slots that the frame pointers were read from, or [`slot::NONE`].
    pub bp_slots: [u16; MAX_FRAMES],
    /// Frame pointers.
    pub bps: [u64; MAX_FRAMES],
}

/// Values for a word that has no slot.
pub mod slot {
    /// The word is not aligned or out of range. For a frame pointer: it was not read, because it is the same
    /// as in the frame before, or lost.
    pub const NONE: u32 = 0xffff;
    /// The step read other words, or a word without a slot.
    pub const UNKNOWN: u32 = 0x1_0000;
}

/// Slots of a [`StackWindow`]; a power of two.
pub const WINDOW_SLOTS: usize = 64;

/// A copy of a piece of a stack: most words that a walk reads are close together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StackWindow {
    /// Address of the first slot; [`NO_WINDOW`] if the window is empty.
    pub start: u64,
    /// The words from there on.
    pub slots: [u64; WINDOW_SLOTS],
}

/// An address that no stack has.
pub const NO_WINDOW: u64 = u64::MAX;

/// A mapping of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The file; all zero if there is none.
    pub file: FileKey,
    /// Address of the kernel's record of the mapping (`vm_area_struct`).
    pub record: u64,
}

const _: () = {
    assert!(
        size_of::<WalkState>()
            == 176
                + CACHED_MAPPINGS * size_of::<Mapping>()
                + size_of::<StackWindow>()
                + size_of::<WalkCache>()
    );
    assert!(size_of::<WalkCache>() == 48 + 12 * MAX_FRAMES);
    assert!(size_of::<StackWindow>() == 8 + 8 * WINDOW_SLOTS);
    assert!(size_of::<Mapping>() == 56);
};
