//! Entry of the functions that replace one block by another. The old block leaves the live map at the entry,
//! before another thread can get its address.
//!
//! Argument positions come from the table in `heaptrace_common::arguments`, by the name of the program.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use heaptrace_common::{
    arguments::{Argument, EntryProgram, Size},
    wire::call,
};

use super::arguments::{Arguments, stack_pointer};
use super::next;
use crate::{
    caller::{Caller, is_recorded},
    counting_filter, live,
    probe_hits::hit,
    process, sample, thread,
};

macro_rules! reallocations {
    ($($(#[$doc:meta])* $name:ident: $call:ident $(, $throws:ident)?;)+) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $name(ctx: ProbeContext) -> u32 {
            const ENTRY: &EntryProgram = EntryProgram::named(stringify!($name));
            const POINTER: usize = ENTRY.at(Argument::Pointer);
            const SIZE: Size = ENTRY.size();
            hit(&ctx);
            let arguments = Arguments::new(&ctx);
            let needs_stack = reallocate(&ctx, call::$call, arguments.get(POINTER), arguments.size(SIZE));
            $($throws(&ctx);)?
            if needs_stack {
                next::walk_stack(&ctx);
            }
            0
        }
    )+};
}

reallocations! {
    /// `realloc(pointer, size, …)`.
    realloc_entry: REALLOC;
    /// `heap_realloc(heap, pointer, size, …)`.
    heap_realloc_entry: REALLOC;
    /// `aligned_realloc(pointer, alignment, size, …)`.
    aligned_realloc_entry: REALLOC;
    /// `realloc(pointer, old_size, alignment, size)`, as Rust has it.
    rust_realloc_entry: REALLOC;
    /// `heap_aligned_realloc(heap, pointer, alignment, size)`.
    heap_aligned_realloc_entry: REALLOC;
    /// `reallocarray(pointer, count, size, …)`.
    reallocarray_entry: REALLOC;
    /// `heap_reallocarray(heap, pointer, count, size, …)`.
    heap_reallocarray_entry: REALLOC;
    /// `reallocf(pointer, size)`, which frees the block if it fails.
    reallocf_entry: REALLOC_OR_FREE;
    /// `heap_reallocf(heap, pointer, size)`.
    heap_reallocf_entry: REALLOC_OR_FREE;
    /// `xallocx(pointer, size, extra, flags)`, which does not move the block, and returns its size.
    resize_entry: RESIZE;
    /// `new_realloc(pointer, size)`, which throws if it fails.
    new_realloc_entry: REALLOC, may_throw;
    /// `new_reallocn(pointer, count, size)`, which throws if it fails.
    new_reallocn_entry: REALLOC, may_throw;
}

/// A function that may throw has no return probe.
#[inline(always)]
fn may_throw(ctx: &ProbeContext) {
    thread::record_return_address(ctx, stack_pointer(ctx));
}

/// The countdown that [`enter`] gets if the call is not sampled. No countdown has this value.
const NOT_SAMPLED: i64 = i64::MIN;

/// A request to resize a block to this many bytes; `None` if their product overflows. Returns whether the stack must be
/// walked.
#[inline(always)]
fn reallocate(ctx: &ProbeContext, call: u32, pointer: u64, size: Option<u64>) -> bool {
    if !is_recorded() {
        return false;
    }
    let size = size.unwrap_or(u64::MAX);
    match sample::count_down(ctx, stack_pointer(ctx), size) {
        Some(before) => enter(ctx, call, pointer, size, before),
        None if pointer != 0 && counting_filter::may_have_block(pointer) => {
            enter(ctx, call, pointer, size, NOT_SAMPLED)
        }
        None => false,
    }
}

#[inline(never)]
fn enter(ctx: &ProbeContext, call: u32, pointer: u64, size: u64, before: i64) -> bool {
    let Some(caller) = Caller::current() else {
        return false;
    };
    let sp = stack_pointer(ctx);
    let sampled = match before {
        NOT_SAMPLED => None,
        before => sample::draw(ctx, caller, sp, size, before),
    };
    let mean = match sampled {
        Some(mean) => mean,
        // The old block may be recorded although the new one is not.
        None if has_recorded_block(caller, pointer) => 0,
        None => return false,
    };
    thread::enter(ctx, caller, sp)
        .is_some_and(|state| thread::set_pending(ctx, state, sp, call, size, pointer, mean))
}

/// Whether the calling process has a recorded block at an address.
#[inline(always)]
fn has_recorded_block(caller: Caller, pointer: u64) -> bool {
    pointer != 0
        && counting_filter::may_have_block(pointer)
        && process::find(caller.tgid()).is_some_and(|process| live::contains(process, pointer))
}
