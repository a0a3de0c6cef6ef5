//! The calling thread: whether it is recorded, its state, and where its call returns to.
//!
//! A function with a return probe has the kernel's trampoline in the slot of its return address while it
//! runs. So the slot tells whether a call is under way, and the code it points to tells whether a call comes
//! from the allocator itself.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, generated::bpf_get_attach_cookie},
    programs::ProbeContext,
};
use heaptrace_common::{
    cookie,
    limits::NESTED_ALLOCATORS,
    trampoline::is_trampoline,
    wire::{CodeRange, ThreadState},
};

use crate::{
    globals::AGENT_TGID,
    maps::{GATE, THREADS},
    memory::word_at,
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
    word_at(sp)
}

/// Whether the kernel's trampoline is in the slot of the return address.
#[inline(always)]
pub fn is_at_trampoline(sp: u64) -> bool {
    is_trampoline(return_address(sp).unwrap_or(0))
}

/// Whether the pending call is still running, as far as the slot of its return address tells. While it runs,
/// the slot holds the kernel's trampoline, or, without a return probe, the return address that it held at the
/// entry.
#[inline(always)]
pub fn is_pending(state: &ThreadState) -> bool {
    match return_address(state.sp) {
        Some(address) if state.return_address != 0 => address == state.return_address,
        Some(address) => is_trampoline(address),
        None => true,
    }
}

/// Whether a call comes from the code of its own allocator or of another one (see [`enter_allocator`]), or is
/// the tail call of a probed function. Only such a call can be inside another one. A lower stack pointer alone
/// proves nothing, because longjmp may have left the other call.
#[inline(always)]
pub fn is_internal(ctx: &ProbeContext, sp: u64, is_of_other: impl FnOnce(u64) -> bool) -> bool {
    let caller = return_address(sp).unwrap_or(0);
    is_trampoline(caller) || allocator_code(ctx).contains(caller) || is_of_other(caller)
}

/// The code of the allocator whose function is probed here.
#[inline(always)]
pub fn allocator_code(ctx: &ProbeContext) -> CodeRange {
    // SAFETY: the helper checks its argument; the kernel passes valid registers.
    let (cookie, here) = unsafe { (bpf_get_attach_cookie(ctx.regs.cast()), (*ctx.regs).rip) };
    if cookie::is_in_fast_code(cookie) {
        // SAFETY: the kernel passes valid registers.
        let (start, end) = unsafe { ((*ctx.regs).r8, (*ctx.regs).r9) };
        return CodeRange { start, end };
    }
    let (before, after) = cookie::reach(cookie);
    CodeRange {
        start: here.wrapping_sub(before),
        end: here.wrapping_add(after),
    }
}

/// Where the probe is in the allocator's code; a probe in the fast path's code is taken for one at its beginning.
#[inline(always)]
pub fn place(ctx: &ProbeContext) -> u64 {
    // SAFETY: the helper checks its argument; the kernel passes valid registers.
    let (cookie, here) = unsafe { (bpf_get_attach_cookie(ctx.regs.cast()), (*ctx.regs).rip) };
    if cookie::is_in_fast_code(cookie) {
        allocator_code(ctx).start
    } else {
        here
    }
}

/// Records that the thread calls this allocator from outside of any.
#[inline(always)]
pub fn enter_allocator(ctx: &ProbeContext, state: &mut ThreadState) {
    state.codes[0] = allocator_code(ctx);
    state.codes_set = 1;
}

/// Records that the thread calls this allocator from inside of another one: a library that wraps an allocator
/// calls it, and may itself be called by another one of its kind.
#[inline(always)]
pub fn enter_nested_allocator(ctx: &ProbeContext, state: &mut ThreadState) {
    // SAFETY: the kernel passes valid registers.
    let here = unsafe { (*ctx.regs).rip };
    let set = state.codes_set as usize;
    if set < NESTED_ALLOCATORS && !is_entered_code(state, here) {
        state.codes[set & (NESTED_ALLOCATORS - 1)] = allocator_code(ctx);
        state.codes_set = set as u32 + 1;
    }
}

/// Whether an address is in the code of an allocator that the thread entered by its last call.
#[inline(always)]
pub fn is_entered_code(state: &ThreadState, address: u64) -> bool {
    let mut is_entered = false;
    for index in 0..NESTED_ALLOCATORS {
        is_entered |= index < state.codes_set as usize && state.codes[index].contains(address);
    }
    is_entered
}
