//! Behind a call that the fast path's code has made, in a run that records every call: the request and its block, in one hit.
//!
//! The code keeps the arguments in their registers, so the positions are those of the entries. The stack pointer is as at the
//! entry. No other thread can have the block yet.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use heaptrace_common::{
    arguments::{Argument, EntryProgram, Size},
    wire::call,
};

use super::arguments::{Arguments, stack_pointer};
use super::{next, returned};
use crate::{caller::Caller, probe_hits::hit, process, thread};

macro_rules! done {
    ($($(#[$doc:meta])* $name:ident: $entry:ident;)+) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $name(ctx: ProbeContext) -> u32 {
            const SIZE: Size = EntryProgram::named(stringify!($entry)).size();
            hit(&ctx);
            // SAFETY: the kernel passes valid registers.
            let block = unsafe { (*ctx.regs).rax };
            done(&ctx, call::ALLOC, Arguments::new(&ctx).size(SIZE), block);
            0
        }
    )+};
}

done! {
    /// `malloc(size)`.
    malloc_done: malloc_entry;
    /// `aligned_alloc(alignment, size)`, `memalign(alignment, size)`.
    aligned_done: aligned_entry;
    /// `calloc(count, size)`.
    calloc_done: calloc_entry;
}

/// `posix_memalign(result, alignment, size)`.
#[uprobe]
pub fn posix_memalign_done(ctx: ProbeContext) -> u32 {
    const ENTRY: &EntryProgram = EntryProgram::named("posix_memalign_entry");
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    // SAFETY: the kernel passes valid registers.
    let status = unsafe { (*ctx.regs).rax } as u32;
    let block = match status {
        0 => returned::stored(&ctx, arguments.get(const { ENTRY.at(Argument::Pointer) })),
        _ => Some(0),
    };
    if let Some(block) = block {
        let size = arguments.get(const { ENTRY.at(Argument::Size) });
        done(&ctx, call::POSIX_MEMALIGN, Some(size), block);
    }
    0
}

/// A call for so many bytes has returned a block, or 0 if it failed.
#[inline(always)]
fn done(ctx: &ProbeContext, call: u32, size: Option<u64>, block: u64) {
    let needs_stack = begin(ctx, call, size.unwrap_or(u64::MAX), block);
    match needs_stack {
        Some(true) => next::walk_stack(ctx),
        Some(false) => next::take_block(ctx),
        None => {}
    }
}

/// Begins a call that has returned a block. Returns whether its stack must be walked; `None` if there is nothing to record.
#[inline(never)]
fn begin(ctx: &ProbeContext, call: u32, size: u64, block: u64) -> Option<bool> {
    let caller = Caller::current()?;
    let sp = stack_pointer(ctx);
    let state = thread::enter(ctx, caller, sp)?;
    if block == 0 {
        process::count_failed(caller.tgid());
        return None;
    }
    let needs_stack = thread::set_pending(ctx, state, sp, call, size, 0, 1);
    state.returned = block;
    Some(needs_stack)
}
