//! Entry of the functions that allocate: what is asked for, and from where.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_probe_read_kernel, generated::bpf_get_attach_cookie},
    macros::uprobe,
    programs::ProbeContext,
};
use heaptrace_common::{cookie, wire::call};

use crate::{
    own_stack,
    thread::{self, Caller},
};

/// `malloc(size)`, `valloc(size)`, `pvalloc(size)`.
#[uprobe]
pub fn malloc_entry(ctx: ProbeContext) -> u32 {
    own_stack::keep(&ctx);
    enter(&ctx, call::ALLOC, argument(&ctx, 0), 0);
    0
}

/// `calloc(count, size)`.
#[uprobe]
pub fn calloc_entry(ctx: ProbeContext) -> u32 {
    own_stack::keep(&ctx);
    match product(argument(&ctx, 0), argument(&ctx, 1)) {
        Some(size) => enter(&ctx, call::ALLOC, size, 0),
        None => enter(&ctx, call::OVERFLOW, u64::MAX, 0),
    }
    0
}

/// `aligned_alloc(alignment, size)`, `memalign(alignment, size)`.
#[uprobe]
pub fn aligned_entry(ctx: ProbeContext) -> u32 {
    own_stack::keep(&ctx);
    enter(&ctx, call::ALLOC, argument(&ctx, 1), 0);
    0
}

/// `posix_memalign(result, alignment, size)`.
#[uprobe]
pub fn posix_memalign_entry(ctx: ProbeContext) -> u32 {
    own_stack::keep(&ctx);
    enter(
        &ctx,
        call::POSIX_MEMALIGN,
        argument(&ctx, 2),
        argument(&ctx, 0),
    );
    0
}

/// Product of two sizes, if it fits. By halves: BPF has no multiplication wider than 64 bits, which
/// is what `checked_mul` becomes.
#[inline(always)]
fn product(a: u64, b: u64) -> Option<u64> {
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

#[inline(always)]
fn enter(ctx: &ProbeContext, call: u32, size: u64, pointer: u64) {
    let Some(caller) = Caller::current() else {
        return;
    };
    let sp = stack_pointer(ctx);
    if let Some(state) = thread::enter(ctx, caller, sp) {
        thread::pend(ctx, state, sp, call, size, pointer);
    }
}

/// An integer argument of the probed function, wherever it stands at the place of the probe.
#[inline(always)]
pub fn argument(ctx: &ProbeContext, index: usize) -> u64 {
    // SAFETY: the helpers check what they are given; the cookie names one of the saved registers.
    unsafe {
        let cookie = bpf_get_attach_cookie(ctx.as_ptr());
        let register = ctx
            .as_ptr()
            .byte_add(cookie::argument_at(cookie, index) as usize);
        bpf_probe_read_kernel(register.cast::<u64>()).unwrap_or(0)
    }
}

/// The stack pointer at a probe.
#[inline(always)]
pub fn stack_pointer(ctx: &ProbeContext) -> u64 {
    // SAFETY: the kernel passes valid registers.
    unsafe { (*ctx.regs).rsp }
}
