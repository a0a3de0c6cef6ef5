//! The arguments of a probed function, and the stack pointer, as they stand at the place of the probe.
//!
//! It must not know what they mean. Most functions are probed where their arguments stand in the registers that they are
//! passed in, which a program can read for nothing; a helper call takes longer than all else that is done about a call
//! that is not recorded.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_probe_read_kernel, generated::bpf_get_attach_cookie},
    programs::ProbeContext,
};
use heaptrace_common::cookie::{self, Register};

/// The arguments of the call at hand.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    ctx: &'a ProbeContext,
    cookie: u64,
}

impl<'a> Arguments<'a> {
    /// Those at this probe.
    #[inline(always)]
    pub fn new(ctx: &'a ProbeContext) -> Self {
        Self {
            ctx,
            // SAFETY: the helper checks what it is given.
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
}

/// The stack pointer at a probe.
#[inline(always)]
pub fn stack_pointer(ctx: &ProbeContext) -> u64 {
    // SAFETY: the kernel passes valid registers.
    unsafe { (*ctx.regs).rsp }
}
