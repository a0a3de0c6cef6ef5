//! The kernel programs that others end with, by a tail call: their places in the map of such programs.

/// The walk of a stack.
pub const WALK: u32 = 0;

/// The recording of a block that the fast path's code has got.
pub const TAKE_BLOCK: u32 = 1;

/// How many there are.
pub const PROGRAMS: u32 = 2;
