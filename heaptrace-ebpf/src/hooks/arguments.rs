//! The arguments of a probed function and the stack pointer, as they are at the probe location.
//!
//! Most functions are probed where their arguments are still in the registers that they were passed in. A
//! program reads those for free. A helper call takes longer than all other work on a call that is not
//! recorded.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_probe_read_kernel, generated::bpf_get_attach_cookie},
    programs::ProbeContext,
};
use heaptrace_common::{
    arguments::Size,
    cookie::{self, Register},
};

/// The arguments of the current call.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    ctx: &'a ProbeContext,
    cookie: u64,
}

impl<'a> Arguments<'a> {
    /// The arguments at this probe.
    #[inline(always)]
    pub fn new(ctx: &'a ProbeContext) -> Self {
        Self {
            ctx,
            // SAFETY: the helper checks its argument.
            cookie: unsafe { bpf_get_attach_cookie(ctx.as_ptr()) },
        }
    }

    /// An integer argument.
    #[inline(always)]
    pub fn get(self, index: usize) -> u64 {
        let at = cookie::argument_at(self.cookie, index);
        if at == Register::PASSED[index].saved_at() {
            // SAFETY: the kernel passes valid registers.
            unsafe {
                return match index {
                    0 => (*self.ctx.regs).rdi,
                    1 => (*self.ctx.regs).rsi,
                    2 => (*self.ctx.regs).rdx,
                    _ => (*self.ctx.regs).rcx,
                };
            }
        }
        // SAFETY: the helper checks the address; the cookie names one of the saved registers.
        unsafe {
            let register = self.ctx.as_ptr().byte_add(at as usize);
            bpf_probe_read_kernel(register.cast::<u64>()).unwrap_or(0)
        }
    }

    /// The requested bytes; `None` if their product overflows.
    #[inline(always)]
    pub fn size(self, size: Size) -> Option<u64> {
        match size {
            Size::At(index) => Some(self.get(index)),
            Size::Product(count, size) => product(self.get(count), self.get(size)),
        }
    }
}

/// Product of two sizes, if it fits. Computed by halves: `checked_mul` becomes a multiplication wider than 64
/// bits, which BPF does not have.
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

/// The stack pointer at a probe.
#[inline(always)]
pub fn stack_pointer(ctx: &ProbeContext) -> u64 {
    // SAFETY: the kernel passes valid registers.
    unsafe { (*ctx.regs).rsp }
}
