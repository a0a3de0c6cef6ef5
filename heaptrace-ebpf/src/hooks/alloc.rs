//! Entry of the functions that allocate: what is asked for, and from where.

use aya_ebpf::{helpers::bpf_probe_read_user, macros::uprobe, programs::ProbeContext};
use heaptrace_common::wire::call;

use super::{
    arguments::{Arguments, stack_pointer},
    hit,
};
use crate::{
    decided, sample,
    thread::{self, Caller, is_recorded},
};

/// Whether a function may be left by an exception; then it has no return probe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Throws {
    Never,
    Maybe,
}

macro_rules! allocations {
    ($($(#[$doc:meta])* $name:ident: $throws:ident, $size:expr;)+) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $name(ctx: ProbeContext) -> u32 {
            hit(&ctx);
            let size: fn(Arguments<'_>) -> Option<u64> = $size;
            request(&ctx, size(Arguments::new(&ctx)), Throws::$throws);
            0
        }
    )+};
}

allocations! {
    /// `malloc(size, …)`.
    malloc_entry: Never, |it| Some(it.get(0));
    /// `aligned_alloc(alignment, size)`, `memalign(alignment, size)`, and all that begin with a heap
    /// and a size.
    aligned_entry: Never, |it| Some(it.get(1));
    /// `heap_aligned_alloc(heap, alignment, size)`.
    heap_aligned_entry: Never, |it| Some(it.get(2));
    /// `calloc(count, size, …)`.
    calloc_entry: Never, |it| product(it.get(0), it.get(1));
    /// `heap_calloc(heap, count, size, …)`.
    heap_calloc_entry: Never, |it| product(it.get(1), it.get(2));
    /// `heap_aligned_calloc(heap, alignment, count, size)`.
    heap_aligned_calloc_entry: Never, |it| product(it.get(2), it.get(3));
    /// `operator new(size, …)`.
    new_entry: Maybe, |it| Some(it.get(0));
    /// `heap_new(heap, size)`.
    heap_new_entry: Maybe, |it| Some(it.get(1));
    /// `new_n(count, size)`.
    new_n_entry: Maybe, |it| product(it.get(0), it.get(1));
    /// `heap_new_n(heap, count, size)`.
    heap_new_n_entry: Maybe, |it| product(it.get(1), it.get(2));
}

/// `posix_memalign(result, alignment, size)`.
#[uprobe]
pub fn posix_memalign_entry(ctx: ProbeContext) -> u32 {
    hit(&ctx);
    let arguments = Arguments::new(&ctx);
    begin(
        &ctx,
        call::POSIX_MEMALIGN,
        arguments.get(2),
        arguments.get(0),
    );
    0
}

/// A call for so many bytes, `None` where their product overflows.
#[inline(always)]
fn request(ctx: &ProbeContext, size: Option<u64>, throws: Throws) {
    match size {
        Some(size) => begin(ctx, call::ALLOC, size, 0),
        None => begin(ctx, call::OVERFLOW, u64::MAX, 0),
    }
    if throws == Throws::Maybe {
        note_return_address(ctx);
    }
}

/// Notes where a call returns to that has no return probe, so that it can be told whether it is still under
/// way: with the call where it is pending, else for those that it goes on in.
#[inline(always)]
pub fn note_return_address(ctx: &ProbeContext) {
    let Some(caller) = Caller::current() else {
        return;
    };
    let sp = stack_pointer(ctx);
    // SAFETY: the helper checks the address.
    let returns_to = unsafe { bpf_probe_read_user(sp as *const u64) }.unwrap_or(0);
    match caller.state() {
        Some(state) if state.sp == sp => state.returns_to = returns_to,
        _ if sample::is_partial() => decided::note(caller, sp, returns_to),
        _ => {}
    }
}

/// Product of two sizes, if it fits. By halves: BPF has no multiplication wider than 64 bits, which
/// is what `checked_mul` becomes.
#[inline(always)]
pub fn product(a: u64, b: u64) -> Option<u64> {
    let (a_high, b_high) = (a >> 32, b >> 32);
    if a_high != 0 && b_high != 0 {
        return None;
    }
    let (a_low, b_low) = (a & 0xffff_ffff, b & 0xffff_ffff);
    // One of the two products is zero.
    let middle = a_high * b_low + b_high * a_low;
    if middle >> 32 != 0 {
        return None;
    }
    let (high, low) = (middle << 32, a_low * b_low);
    let sum = high.wrapping_add(low);
    (sum >= high).then_some(sum)
}

/// What almost all calls come to where not all are recorded is part of each program.
#[inline(always)]
fn begin(ctx: &ProbeContext, call: u32, size: u64, pointer: u64) {
    if is_recorded()
        && let Some(before) = sample::meets(stack_pointer(ctx), size)
    {
        enter(ctx, call, size, pointer, before);
    }
}

/// The rest is not: there are many.
#[inline(never)]
fn enter(ctx: &ProbeContext, call: u32, size: u64, pointer: u64, before: i64) {
    let Some(caller) = Caller::current() else {
        return;
    };
    let sp = stack_pointer(ctx);
    let Some(mean) = sample::takes(ctx, caller, sp, size, before) else {
        return;
    };
    if let Some(state) = thread::enter(ctx, caller, sp) {
        thread::pend(ctx, state, sp, call, size, pointer, mean);
    }
}
