//! Call stacks: captured at the entry of a call into the thread's state, and sent once.

use aya_ebpf::programs::ProbeContext;
use heaptrace_common::{
    counters::Counter,
    limits::MAX_FRAMES,
    unwind::Registers,
    wire::{RawWalk, Stack, StackHead, StackKey, WalkState, kind, walk},
};

use crate::{
    counters::{count_and_warn, next_id},
    globals::HASH_SEED,
    hash::mix,
    kernel::now,
    maps::STACKS,
    raw, ring, unwind, window,
};

/// Captures the stack of a call at its entry, while the caller's address is on top of the stack.
#[inline(always)]
pub fn capture(ctx: &ProbeContext, sp: u64, stack: &mut Stack, walk: &mut WalkState) {
    // SAFETY: the kernel passes valid registers.
    let bp = unsafe { (*ctx.regs).rbp };
    let Some(ip) = window::open(&mut walk.window, sp) else {
        stack.head.id = 0;
        stack.head.depth = 0;
        stack.head.walk = walk::UNREADABLE;
        return;
    };
    walk.registers = Registers { ip, sp: sp + 8, bp };
    unwind::walk(stack, walk);
}

/// Id of a stack, which is sent if it is new. `None` if the ring is full.
#[inline(always)]
pub fn id(ctx: &impl aya_ebpf::EbpfContext, stack: &mut Stack, process: u64) -> Option<u64> {
    if stack.head.id != 0 {
        return Some(stack.head.id);
    }
    let mut raw = raw::of(stack);
    let key = key(stack, process, raw.as_deref());
    // SAFETY: the id is copied at once; the stacks of a process stay in the map until the process ends.
    match unsafe { STACKS.get(key) } {
        Some(id) => stack.head.id = *id,
        None => send(ctx, stack, key, raw.as_deref_mut())?,
    }
    Some(stack.head.id)
}

#[inline(always)]
fn send(
    ctx: &impl aya_ebpf::EbpfContext,
    stack: &mut Stack,
    key: StackKey,
    raw: Option<&mut RawWalk>,
) -> Option<()> {
    let has_raw = raw.is_some();
    if let Some(raw) = raw {
        raw::send(raw, key);
    }
    let id = next_id();
    let depth = stack.head.depth.min(MAX_FRAMES as u32);
    stack.head = StackHead {
        kind: kind::STACK,
        pad: 0,
        depth,
        time: now(),
        process: key.process,
        id,
        walk: stack.head.walk,
        raw: u32::from(has_raw),
        hash: [key.low, key.high],
        language: stack.head.language,
        language_frames: stack.head.language_frames,
    };
    let bytes = size_of::<StackHead>() as u64 + u64::from(depth) * 8;
    // Sent before it enters the map: a thread that finds the id in the map sends its event after the stack.
    // Two threads may both send a new stack; the agent recognizes that they are the same.
    // SAFETY: the record has at least `bytes` bytes.
    let is_sent = unsafe { ring::output(stack, bytes, ring::soon_for_stack(stack.head.time)) };
    if !is_sent {
        stack.head.id = 0;
        return None;
    }
    if STACKS.insert(key, id, 0).is_err() {
        count_and_warn!(
            ctx,
            Counter::StackMapFull,
            "the stack map is full: {} stacks sent again"
        );
    }
    Some(())
}

/// Hashes a stack to 128 bits. Its language frames and its raw stack are part of it.
#[inline(always)]
fn key(stack: &Stack, process: u64, raw: Option<&RawWalk>) -> StackKey {
    let raw = raw.map_or([0; 2], |raw| raw.hash);
    let mut low = HASH_SEED.load() ^ stack.head.language ^ raw[0];
    let mut high = low.rotate_left(32) ^ 0xc2b2_ae3d_27d4_eb4f ^ raw[1];
    let depth = stack.head.depth as usize;
    for index in 0..MAX_FRAMES {
        if index >= depth {
            break;
        }
        let frame = stack.frames[index];
        [low, high] = mix([low, high], frame);
    }
    StackKey {
        low,
        high: high ^ depth as u64 ^ u64::from(stack.head.walk) << 32,
        process,
    }
}
