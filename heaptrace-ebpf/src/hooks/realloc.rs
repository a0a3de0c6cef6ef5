//! Entry of the functions that give one block for another: the old one leaves the live map before
//! another thread can get its address.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use heaptrace_common::wire::call;

use super::alloc::{note_return_address, product};
use super::{
    arguments::{Arguments, stack_pointer},
    hit,
};
use crate::{
    live, places, process, sample,
    thread::{self, Caller, is_recorded},
};

macro_rules! reallocations {
    ($($(#[$doc:meta])* $name:ident: $call:ident, $pointer:literal, $size:expr;)+) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $name(ctx: ProbeContext) -> u32 {
            hit(&ctx);
            let size: fn(Arguments<'_>) -> Option<u64> = $size;
            let arguments = Arguments::new(&ctx);
            reallocate(&ctx, call::$call, arguments.get($pointer), size(arguments));
            0
        }
    )+};
}

reallocations! {
    /// `realloc(pointer, size, …)`.
    realloc_entry: REALLOC, 0, |it| Some(it.get(1));
    /// `heap_realloc(heap, pointer, size, …)`.
    heap_realloc_entry: REALLOC, 1, |it| Some(it.get(2));
    /// `aligned_realloc(pointer, alignment, size, …)`.
    aligned_realloc_entry: REALLOC, 0, |it| Some(it.get(2));
    /// `realloc(pointer, old_size, alignment, size)`, as Rust has it.
    rust_realloc_entry: REALLOC, 0, |it| Some(it.get(3));
    /// `heap_aligned_realloc(heap, pointer, alignment, size)`.
    heap_aligned_realloc_entry: REALLOC, 1, |it| Some(it.get(3));
    /// `reallocarray(pointer, count, size, …)`.
    reallocarray_entry: REALLOC, 0, |it| product(it.get(1), it.get(2));
    /// `heap_reallocarray(heap, pointer, count, size, …)`.
    heap_reallocarray_entry: REALLOC, 1, |it| product(it.get(2), it.get(3));
    /// `reallocf(pointer, size)`, which frees the block where it fails.
    reallocf_entry: REALLOC_OR_FREE, 0, |it| Some(it.get(1));
    /// `heap_reallocf(heap, pointer, size)`.
    heap_reallocf_entry: REALLOC_OR_FREE, 1, |it| Some(it.get(2));
    /// `xallocx(pointer, size, extra, flags)`, which leaves the block where it is, and returns how
    /// large it is now.
    resize_entry: RESIZE, 0, |it| Some(it.get(1));
}

/// `new_realloc(pointer, size)`, which throws where it fails.
#[uprobe]
pub fn new_realloc_entry(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    let size = Some(arguments.get(1));
    reallocate(&ctx, call::REALLOC, arguments.get(0), size);
    note_return_address(&ctx);
    0
}

/// `new_reallocn(pointer, count, size)`, which throws where it fails.
#[uprobe]
pub fn new_reallocn_entry(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    let size = product(arguments.get(1), arguments.get(2));
    reallocate(&ctx, call::REALLOC, arguments.get(0), size);
    note_return_address(&ctx);
    0
}

/// What [`enter`] is told of the countdown where the call is not taken: there is none of so much.
const NOT_TAKEN: i64 = i64::MIN;

/// A call for so many bytes instead of a block, `None` where their product overflows.
#[inline(always)]
fn reallocate(ctx: &ProbeContext, call: u32, pointer: u64, size: Option<u64>) {
    if !is_recorded() {
        return;
    }
    let size = size.unwrap_or(u64::MAX);
    match sample::meets(stack_pointer(ctx), size) {
        Some(before) => enter(ctx, call, pointer, size, before),
        None if pointer != 0 && places::may_have_block(pointer) => {
            enter(ctx, call, pointer, size, NOT_TAKEN);
        }
        None => {}
    }
}

#[inline(never)]
fn enter(ctx: &ProbeContext, call: u32, pointer: u64, size: u64, before: i64) {
    let Some(caller) = Caller::current() else {
        return;
    };
    let sp = stack_pointer(ctx);
    let taken = match before {
        NOT_TAKEN => None,
        before => sample::takes(ctx, caller, sp, size, before),
    };
    let mean = match taken {
        Some(mean) => mean,
        // The block that it frees may be recorded though the one that it makes is not.
        None if is_known(caller, pointer) => 0,
        None => return,
    };
    if let Some(state) = thread::enter(ctx, caller, sp) {
        thread::pend(ctx, state, sp, call, size, pointer, mean);
        // Not where it turned out to be inside another call.
        if state.sp != 0
            && pointer != 0
            && let Some(block) = live::take(state.process, pointer)
        {
            state.taken = block;
        }
    }
}

/// Whether a recorded block of the calling process stands at an address.
#[inline(always)]
fn is_known(caller: Caller, pointer: u64) -> bool {
    pointer != 0
        && places::may_have_block(pointer)
        && process::known(caller.tgid()).is_some_and(|process| live::knows(process, pointer))
}
