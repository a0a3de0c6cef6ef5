//! The state of a walk, which every callback of its loops gets.

use heaptrace_common::wire::{Stack, WalkState};

/// A walk in progress. Everything that changes is in the thread's state, including depth and status.
pub struct Walk<'a> {
    pub stack: &'a mut Stack,
    pub state: &'a mut WalkState,
}

/// What a callback of `bpf_loop` returns to continue.
pub const CONTINUE: i64 = 0;

/// What a callback of `bpf_loop` returns to end the loop.
pub const STOP: i64 = 1;
