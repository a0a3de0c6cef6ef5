//! The calling thread: whether it is recorded, its state, and where its call returns to.
//!
//! A function with a return probe has the kernel's trampoline in the slot of its return address while it
//! runs. So the slot tells whether a call is under way, and the code it points to tells whether a call comes
//! from the allocator itself.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_user, generated::bpf_get_attach_cookie},
    programs::ProbeContext,
};
use heaptrace_common::{cookie, trampoline::is_trampoline, wire::ThreadState};

use crate::{
    globals::AGENT_TGID,
    maps::{GATE, THREADS},
};

/// The current thread.
#[derive(Clone, Copy)]
pub struct Caller {
    /// Process id in the upper half, thread id in the lower.
    pub key: u64,
}

impl Caller {
    /// The thread that this program runs for; `None` if its calls are not recorded.
    #[inline(always)]
    pub fn current() -> Option<Self> {
        is_recorded().then(|| Self {
            key: bpf_get_current_pid_tgid(),
        })
    }

    /// Process id.
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        (self.key >> 32) as u32
    }

    /// Thread id.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        self.key as u32
    }

    /// State of the thread, if it has one.
    #[inline(always)]
    pub fn state(self) -> Option<&'static mut ThreadState> {
        // SAFETY: only the thread itself changes and removes its state, and it runs one program at a time.
        THREADS
            .get_ptr_mut(self.key)
            .map(|state| unsafe { &mut *state })
    }
}

/// Whether calls are recorded now, and the current thread is not the agent's.
#[inline(always)]
pub fn is_recorded() -> bool {
    GATE.get(0).is_some_and(|gate| *gate != 0)
        && match AGENT_TGID.load() {
            0 => true,
            agent => (bpf_get_current_pid_tgid() >> 32) as u32 != agent,
        }
}

/// The word in the slot of the return address of a call that was entered with this stack pointer.
#[inline(always)]
pub fn return_address(sp: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(sp as *const u64) }.ok()
}

/// Whether the kernel's trampoline is in the slot of the return address.
#[inline(always)]
pub fn is_at_trampoline(sp: u64) -> bool {
    is_trampoline(return_address(sp).unwrap_or(0))
}

/// Whether a call comes from the allocator's own code, or is the tail call of a probed function. Only such a
/// call can be inside another one. A lower stack pointer alone proves nothing, because longjmp may have left
/// the other call.
#[inline(always)]
pub fn is_internal(ctx: &ProbeContext, sp: u64) -> bool {
    let caller = return_address(sp).unwrap_or(0);
    is_trampoline(caller) || is_allocator_code(ctx, caller)
}

/// Whether an address is in the code of the allocator whose function is probed here.
#[inline(always)]
pub fn is_allocator_code(ctx: &ProbeContext, address: u64) -> bool {
    // SAFETY: the helper checks its argument; the kernel passes valid registers.
    let (cookie, here) = unsafe { (bpf_get_attach_cookie(ctx.regs.cast()), (*ctx.regs).rip) };
    let (before, after) = cookie::reach(cookie);
    address >= here.wrapping_sub(before) && address < here.wrapping_add(after)
}
