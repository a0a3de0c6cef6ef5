//! The registers that a signal interrupted, by the kernel's declaration of a signal frame.
//!
//! framehop can't follow the unwind information there.

use std::mem::offset_of;

use heaptrace_common::unwind::{Memory, Registers};

/// The interrupted registers, from the stack pointer of the code that returns from the signal handler.
pub(crate) fn interrupted(from: Registers, memory: &mut impl Memory) -> Option<Registers> {
    let context = offset_of!(libc::ucontext_t, uc_mcontext.gregs) as u64 + from.sp;
    let mut register = |number: i32| memory.read(context + number as u64 * 8);
    Some(Registers {
        ip: register(libc::REG_RIP)?,
        sp: register(libc::REG_RSP)?,
        bp: register(libc::REG_RBP)?,
    })
}
