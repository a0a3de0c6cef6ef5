//! Call stacks, as the kernel program sends and remembers them.

use crate::limits::MAX_FRAMES;

/// The part of a [`Stack`] before its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StackHead {
    /// [`kind::STACK`](super::kind::STACK).
    pub kind: u16,
    /// Zero.
    pub pad: u16,
    /// Number of frames.
    pub depth: u32,
    /// When it was first seen, nanoseconds on the monotonic clock.
    pub time: u64,
    /// Serial number of the process record.
    pub process: u64,
    /// Id, which allocations refer to.
    pub id: u64,
    /// A constant of [`walk`].
    pub walk: u32,
    /// 1 if its [`RawStack`](super::RawStack) was sent before it, and is part of its hash; else 0.
    pub raw: u32,
    /// Its hash: with the process, its key in the stack map.
    pub hash: [u64; 2],
    /// Id of its language frames, such as those of a [`PythonStack`](super::PythonStack); 0 if it has none. A stack has frames of
    /// one runtime.
    pub language: u64,
    /// One bit for each frame: whether it ran language frames, such as one of Python's function that interprets bytecode.
    pub language_frames: [u64; MAX_FRAMES / 64],
}

/// A new stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Stack {
    /// The part before the frames.
    pub head: StackHead,
    /// Return addresses, innermost first; `head.depth` of them are sent.
    pub frames: [u64; MAX_FRAMES],
}

/// How a walk ended.
pub mod walk {
    /// It reached an outermost frame.
    pub const COMPLETE: u32 = 0;
    /// It reached the frame limit.
    pub const TRUNCATED: u32 = 1;
    /// Nothing is mapped at a frame's address: the frame before was misread.
    pub const UNMAPPED: u32 = 2;
    /// The table of a file is not loaded yet.
    pub const NO_TABLE: u32 = 3;
    /// Another thread was changing the mappings.
    pub const BUSY: u32 = 4;
    /// The caller's address could not be read.
    pub const UNREADABLE: u32 = 5;
    /// A step did not find the caller: the [`outcome`](crate::unwind::outcome) of the step plus this.
    pub const STEP: u32 = 8;

    /// Name of the reason why a stack is incomplete.
    pub const fn name(walk: u32) -> &'static str {
        use crate::unwind::outcome;
        match walk {
            UNMAPPED => "unmapped",
            NO_TABLE => "no_table_yet",
            BUSY => "mappings_busy",
            UNREADABLE => "unreadable",
            _ => match walk.wrapping_sub(STEP) {
                outcome::NO_RULE | outcome::NO_FRAME_POINTER => "no_unwind_information",
                outcome::UNSUPPORTED => "unsupported_rule",
                outcome::UNREADABLE | outcome::STUCK => "misread",
                outcome::LOST_FRAME_POINTER => "lost_frame_pointer",
                _ => "unknown",
            },
        }
    }
}

/// Key of the stack map: a hash of 128 bits, with a new random seed for each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct StackKey {
    /// First half of the hash.
    pub low: u64,
    /// Second half.
    pub high: u64,
    /// Serial number of the process record.
    pub process: u64,
}

const _: () = {
    assert!(size_of::<StackHead>() == 80);
    assert!(size_of::<Stack>() == 80 + 8 * MAX_FRAMES);
    assert!(size_of::<StackKey>() == 24);
};
