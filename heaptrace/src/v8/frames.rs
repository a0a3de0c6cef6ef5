//! Recognizes a frame of JavaScript in words of a stack, as the kernel program does for the frames of its own walks.
//!
//! Part of `v8`. The memory is untrusted. Must not know how a stack is walked.

use heaptrace_common::wire::{V8Frame, is_v8_object};

use super::heap::{Heap, Memory, small_number};
use super::layouts::Layout;
use super::names::cookie;

/// Where a frame has its words: how far below the address that its frame pointer holds.
mod below {
    /// The context; a small number in a frame of V8's own code.
    pub(super) const CONTEXT: u64 = 8;
    pub(super) const FUNCTION: u64 = 16;
    /// The bytecode, of an interpreted function.
    pub(super) const BYTECODE: u64 = 32;
    /// The position in the bytecode, of an interpreted function.
    pub(super) const POSITION: u64 = 40;
}

/// The words of a frame that may be one of JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameWords {
    function: u64,
    bytecode: u64,
    position: u64,
    /// The address to which what the frame has called returns.
    return_address: u64,
}

impl FrameWords {
    /// The words of the frame with a frame pointer. `word` reads the stack, and returns any value for what it does not have. `None` if
    /// the frame can't be one of JavaScript.
    pub fn read(
        bp: u64,
        return_address: u64,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> Option<Self> {
        let mut below = |distance: u64| word(bp.wrapping_sub(distance)).unwrap_or(0);
        let function = below(below::FUNCTION);
        let is_one = is_v8_object(below(below::CONTEXT)) && is_v8_object(function);
        is_one.then(|| Self {
            function,
            bytecode: below(below::BYTECODE),
            position: below(below::POSITION),
            return_address,
        })
    }
}

/// The frame of JavaScript with these words; `None` if it is another frame.
pub fn frame<M: Memory>(memory: &M, layout: &Layout, words: FrameWords) -> Option<V8Frame> {
    let heap = Heap::new(memory);
    let FrameWords {
        function,
        bytecode,
        position,
        return_address,
    } = words;
    let shared = heap.field(function, layout.kernel.function_shared.into())?;
    let code = heap.field(function, layout.kernel.function_code.into())?;
    if heap.type_of(shared)? != layout.kernel.shared_type {
        return None;
    }
    let cookie = cookie(&heap, layout, shared)?;
    let is_bytecode = || heap.type_of(bytecode) == Some(layout.kernel.bytecode_type);
    let (code, place) = match small_number(position) {
        Some(position) if is_bytecode() => (bytecode, u64::from(position as u32)),
        _ => (code | V8Frame::IS_COMPILED, return_address),
    };
    Some(V8Frame {
        shared: shared | u64::from(cookie) << V8Frame::COOKIE,
        code,
        place,
    })
}
