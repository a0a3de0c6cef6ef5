//! Entry of the functions that allocate: the requested size, and the stack.
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
    probe_hits::hit,
    sample, thread,
};

/// Whether a function may throw an exception; then it has no return probe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Throws {
    Never,
    Maybe,
}

macro_rules! allocations {
    ($($(#[$doc:meta])* $name:ident: $throws:ident;)+) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $name(ctx: ProbeContext) -> u32 {
            const SIZE: Size = EntryProgram::named(stringify!($name)).size();
            hit(&ctx);
            if request(&ctx, Arguments::new(&ctx).size(SIZE), Throws::$throws) {
                next::walk_stack(&ctx);
            }
            0
        }
    )+};
}

allocations! {
    /// `malloc(size, …)`.
    malloc_entry: Never;
    /// `aligned_alloc(alignment, size)`, `memalign(alignment, size)`, and functions that begin with a heap
    /// and a size.
    aligned_entry: Never;
    /// `heap_aligned_alloc(heap, alignment, size)`.
    heap_aligned_entry: Never;
    /// `calloc(count, size, …)`.
    calloc_entry: Never;
    /// `heap_calloc(heap, count, size, …)`.
    heap_calloc_entry: Never;
    /// `heap_aligned_calloc(heap, alignment, count, size)`.
    heap_aligned_calloc_entry: Never;
    /// `operator new(size, …)`.
    new_entry: Maybe;
    /// `heap_new(heap, size)`.
    heap_new_entry: Maybe;
    /// `new_n(count, size)`.
    new_n_entry: Maybe;
    /// `heap_new_n(heap, count, size)`.
    heap_new_n_entry: Maybe;
}

/// `posix_memalign(result, alignment, size)`.
#[uprobe]
pub fn posix_memalign_entry(ctx: ProbeContext) -> u32 {
    const ENTRY: &EntryProgram = EntryProgram::named("posix_memalign_entry");
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    let size = arguments.get(const { ENTRY.at(Argument::Size) });
    let result = arguments.get(const { ENTRY.at(Argument::Pointer) });
    if begin(&ctx, call::POSIX_MEMALIGN, size, result) {
        next::walk_stack(&ctx);
    }
    0
}

/// A request for this many bytes; `None` if their product overflows. Returns whether the stack must be walked.
#[inline(always)]
fn request(ctx: &ProbeContext, size: Option<u64>, throws: Throws) -> bool {
    let needs_stack = match size {
        Some(size) => begin(ctx, call::ALLOC, size, 0),
        None => begin(ctx, call::OVERFLOW, u64::MAX, 0),
    };
    if throws == Throws::Maybe {
        thread::record_return_address(ctx, stack_pointer(ctx));
    }
    needs_stack
}

/// The part that almost all calls of a partial run end in. It is inlined into each program.
#[inline(always)]
fn begin(ctx: &ProbeContext, call: u32, size: u64, pointer: u64) -> bool {
    if is_recorded()
        && let Some(before) = sample::count_down(ctx, stack_pointer(ctx), size)
    {
        return enter(ctx, call, size, pointer, before);
    }
    false
}

/// The rest. It is not inlined, because there are many programs.
#[inline(never)]
fn enter(ctx: &ProbeContext, call: u32, size: u64, pointer: u64, before: i64) -> bool {
    let Some(caller) = Caller::current() else {
        return false;
    };
    let sp = stack_pointer(ctx);
    let Some(mean) = sample::draw(ctx, caller, sp, size, before) else {
        return false;
    };
    thread::enter(ctx, caller, sp)
        .is_some_and(|state| thread::set_pending(ctx, state, sp, call, size, pointer, mean))
}
