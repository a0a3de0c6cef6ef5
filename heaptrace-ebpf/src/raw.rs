//! Raw stacks: if a walk ends for want of a table, the words of the stack that can matter to the rest of it. The agent continues
//! the walk when it has the table.
//!
//! A step reads return addresses and saved stack and frame pointers alone. So only words are kept that can be an address of code, or of
//! the part of the stack that is searched: some fifty of the two thousand in 16 KiB. They are part of the stack's identity, so a stack is
//! sent once, as others are. In a process with a Java virtual machine, frames of Java code also have addresses of methods and of bytecode; in one
//! with V8, frames of JavaScript have pointers to functions. Other contents of the stack never leave the process.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::{
    bindings::BPF_RB_AVAIL_DATA,
    helpers::{bpf_get_current_pid_tgid, generated::bpf_loop},
    programs::ProbeContext,
};
use heaptrace_common::{
    counters::Counter,
    limits::{CACHED_MAPPINGS, MAX_RAW_WORDS, RAW_STACK_BYTES},
    unwind::LOST_BP,
    wire::{
        Jvm, NO_WINDOW, RAW_TARGETS, RawStack, RawWalk, Stack, StackKey, StackWindow, ThreadState,
        WINDOW_SLOTS, has, kind, mark_zeros, next_zeros, pack_word, walk,
    },
};

use crate::{
    caller::Caller,
    counters::count,
    globals::{HASH_SEED, MM_END_CODE, MM_START_CODE, MM_START_STACK, RING_FILLING_BYTES},
    hash::mix,
    java,
    kernel::read,
    language,
    maps::{BLANK_RAW, EVENTS, RAW_WALKS},
    ring, unwind,
    walk::{CONTINUE, STOP, Walk},
    window,
};

/// Bytes that are read at once. No piece crosses a page, beyond which the stack may end.
const PIECE: u64 = 8 * WINDOW_SLOTS as u64;

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

/// Where the kernel maps libraries and stacks: no program and no heap is above this.
const LIBRARIES: u64 = 0x7000_0000_0000;

/// The end of user space, with four levels of page tables.
const USER_END: u64 = 1 << 47;

/// Keeps the raw stack of the call that was walked just now, if its walk ended for want of a table.
#[inline(always)]
pub fn capture(ctx: &ProbeContext, caller: Caller, state: &mut ThreadState) {
    let is_wanted = state.stack.head.walk == walk::NO_TABLE;
    let is_kept = is_wanted && is_kept(ctx, caller, state);
    if is_wanted && !is_kept {
        count(Counter::RawStacksDropped);
    }
    if !is_wanted && state.walk.has & has::RAW_WALK != 0 {
        end(caller.key);
        state.walk.has &= !has::RAW_WALK;
    }
    // A walk that did not reach an outermost frame has cleared the stack's id.
    state.stack.head.raw = u32::from(is_kept);
}

/// Removes the state of a thread that ends.
#[inline(always)]
pub fn end(key: u64) {
    let _ = RAW_WALKS.remove(key);
}

/// The raw stack of the calling thread's stack, if it has one.
#[inline(always)]
pub fn of(stack: &Stack) -> Option<&'static mut RawWalk> {
    if stack.head.raw == 0 {
        return None;
    }
    language::existing(&RAW_WALKS, bpf_get_current_pid_tgid())
}

/// Sends the raw stack of a stack that is sent next. If there is no room, that stack stays incomplete.
#[inline(always)]
pub fn send(raw: &mut RawWalk, key: StackKey) {
    let stack = &mut raw.stack;
    stack.kind = kind::RAW_STACK;
    stack.pad = 0;
    stack.process = key.process;
    stack.hash = [key.low, key.high];
    let words = stack.count.min(MAX_RAW_WORDS as u32);
    let bytes = core::mem::offset_of!(RawStack, words) as u64 + u64::from(words) * 8;
    // SAFETY: the record has at least `bytes` bytes.
    let is_sent = unsafe { ring::output(stack, bytes, ring::QUIETLY) };
    if !is_sent {
        count(Counter::RawStacksDropped);
    }
}

/// What the loop over pieces of the stack shares.
struct Pass<'a> {
    raw: &'a mut RawWalk,
    window: &'a mut StackWindow,
}

/// Searches the stack. False if there is no room.
#[inline(never)]
fn is_kept(ctx: &ProbeContext, caller: Caller, state: &mut ThreadState) -> bool {
    let registers = state.walk.registers;
    let unread = EVENTS.query(u64::from(BPF_RB_AVAIL_DATA));
    if registers.sp & 7 != 0 || unread > 2 * u64::from(RING_FILLING_BYTES.load()) {
        return false;
    }
    let Some(raw) = language::of_thread(&RAW_WALKS, &BLANK_RAW, caller.key) else {
        return false;
    };
    state.walk.has |= has::RAW_WALK;
    let end = registers.sp.wrapping_add(RAW_STACK_BYTES);
    // SAFETY: the offset comes from the kernel's BTF, and the helper checks the address.
    let first = unsafe { read::<u64>(state.walk.space, MM_START_STACK.load()) };
    let is_first_thread = first > registers.sp && first < end;
    raw.end = if is_first_thread { first } else { end };
    raw.base = registers.sp & !(PIECE - 1);
    set_targets(ctx, raw, state, java::of(caller.tgid()));
    raw.stack.count = 0;
    raw.zeros = 0;
    raw.gap_end = 0;
    raw.stack.bytes = 0;
    raw.stack.registers = registers;
    let bp = registers.bp.wrapping_sub(registers.sp);
    if registers.bp != 0 && bp >= raw.targets[0][1] {
        raw.stack.registers.bp = LOST_BP;
    }
    raw.stack.is_return_address = state.walk.is_return_address;
    raw.stack.is_by_rule = state.walk.cache.is_by_rule;
    let mark = u64::from(state.walk.is_return_address) | 2 * u64::from(state.walk.cache.is_by_rule);
    raw.hash = [HASH_SEED.load(), mark];
    raw.hash = mix(raw.hash, registers.sp);
    raw.hash = mix(raw.hash, registers.ip);
    raw.hash = mix(raw.hash, raw.stack.registers.bp);
    let mut pass = Pass {
        raw,
        window: &mut state.walk.window,
    };
    // SAFETY: the callback gets the pass, which outlives the loop.
    unsafe {
        bpf_loop(
            (RAW_STACK_BYTES / PIECE) as u32 + 1,
            search as *mut c_void,
            (&raw mut pass).cast::<c_void>(),
            0,
        );
    }
    true
}

/// Sets where words must point to: the part of the stack, the program's code, all libraries, and the code at which the walk ended. Where
/// the kernel maps libraries, Java's virtual machine has its code and its methods; V8 has its objects below.
#[inline(always)]
fn set_targets(ctx: &ProbeContext, raw: &mut RawWalk, state: &mut ThreadState, jvm: Option<&Jvm>) {
    let sp = state.walk.registers.sp;
    let (start, end) = (state.walk.mapping.start, state.walk.mapping.end);
    // The mapping of the allocator's code is among those of the libraries, unless the program has its own allocator.
    // SAFETY: the kernel passes valid registers.
    let here = unsafe { (*ctx.regs).rip };
    let mut walk = Walk {
        stack: &mut state.stack,
        state: &mut state.walk,
    };
    unwind::note_mapping(&mut walk, here);
    let mut libraries = if start >= LIBRARIES { start } else { USER_END };
    for index in 0..CACHED_MAPPINGS {
        let cached = &state.walk.cached[index];
        if cached.end != 0 && cached.start >= LIBRARIES && cached.start < libraries {
            libraries = cached.start;
        }
    }
    let space = state.walk.space;
    // SAFETY: offsets come from the kernel's BTF, and the helper checks addresses.
    let (code, code_end) = unsafe {
        (
            read::<u64>(space, MM_START_CODE.load()),
            read::<u64>(space, MM_END_CODE.load()),
        )
    };
    raw.targets[0] = [sp, raw.end.wrapping_sub(sp)];
    raw.targets[1] = [code, code_end.wrapping_sub(code)];
    raw.targets[2] = [libraries, USER_END.wrapping_sub(libraries)];
    raw.targets[3] = [start, end.wrapping_sub(start)];
    if let Some(jvm) = jvm {
        raw.targets[2] = [LIBRARIES, USER_END - LIBRARIES];
        let archive = jvm.archive;
        let length = archive.end.wrapping_sub(archive.start);
        // The mapping at which the walk ended needs no range of its own if it is in one of the others.
        if start >= LIBRARIES || start.wrapping_sub(archive.start) < length {
            raw.targets[3] = [archive.start, length];
        }
    }
}

/// Searches one piece of the stack.
#[inline(never)]
extern "C" fn search(index: u32, pass: *mut c_void) -> i64 {
    // SAFETY: `is_kept` passes a pass.
    let Pass { raw, window } = unsafe { &mut *pass.cast::<Pass<'_>>() };
    let address = raw.base.wrapping_add(u64::from(index) * PIECE);
    if address >= raw.end {
        return STOP;
    }
    if address < raw.gap_end {
        return CONTINUE;
    }
    window::move_to(window, address);
    if window.start == NO_WINDOW {
        raw.gap_end = (address | (PAGE - 1)).wrapping_add(1);
        raw.zeros = 0;
        return CONTINUE;
    }
    let sp = raw.stack.registers.sp;
    let most = raw.targets[0][1];
    for slot in 0..WINDOW_SLOTS {
        let word = window.slots[slot];
        let at = address.wrapping_add(8 * slot as u64).wrapping_sub(sp);
        let zeros = raw.zeros;
        raw.zeros = next_zeros(zeros, word == 0);
        // Below the stack pointer, the difference is huge.
        if at >= most || !is_target(raw, word) {
            continue;
        }
        let count = raw.stack.count;
        if count as usize >= MAX_RAW_WORDS {
            return STOP;
        }
        let packed = pack_word(at >> 3, word);
        raw.stack.words[black_box(count as usize) & (MAX_RAW_WORDS - 1)] =
            mark_zeros(packed, zeros);
        raw.stack.count = count + 1;
        raw.stack.bytes = at + 8;
        // Without the marks: they decide at most whether the end of the stack is recognized, and other values come and go beside
        // those that matter.
        raw.hash = mix(raw.hash, packed);
    }
    let searched = address.wrapping_add(PIECE).wrapping_sub(sp);
    raw.stack.bytes = searched.min(most);
    CONTINUE
}

/// Whether a word can be an address that a walk uses.
#[inline(always)]
fn is_target(raw: &RawWalk, word: u64) -> bool {
    if word >= USER_END {
        return false;
    }
    for index in 0..RAW_TARGETS {
        let [start, length] = raw.targets[index];
        if word.wrapping_sub(start) < length {
            return true;
        }
    }
    false
}
