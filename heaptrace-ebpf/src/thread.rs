//! Threads: the pending call of each, and which calls are inside others.

use aya_ebpf::{
    EbpfContext,
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_user, generated::bpf_get_attach_cookie},
    programs::ProbeContext,
};
use heaptrace_common::{
    cookie,
    counters::Counter,
    wire::{ThreadState, call},
};

use crate::{
    counters::{count, count_and_warn},
    globals::AGENT_TGID,
    hits,
    live::{self, NO_BLOCK},
    maps::{BLANK, GATE, THREADS},
    process, sample, seen, stack,
};

/// The page that the kernel maps for returns from probed functions: it takes the highest page
/// below the end of user space, which nothing else uses.
const TRAMPOLINE_PAGE: u64 = 0x7fff_ffff_e000;

/// The current thread.
#[derive(Clone, Copy)]
pub struct Caller {
    /// Process id in the upper half, thread id in the lower.
    pub key: u64,
}

impl Caller {
    /// The thread that runs this program, unless nothing is to be recorded of it.
    #[inline(always)]
    pub fn current() -> Option<Self> {
        if *GATE.get(0)? == 0 {
            return None;
        }
        let caller = Self {
            key: bpf_get_current_pid_tgid(),
        };
        if caller.tgid() == AGENT_TGID.load() {
            return None;
        }
        hits::count(caller.tgid());
        Some(caller)
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
        // SAFETY: only the thread itself touches its state, and it runs one program at a time.
        THREADS
            .get_ptr_mut(self.key)
            .map(|state| unsafe { &mut *state })
    }
}

/// State of the thread at the entry of an allocator function, its stack pointer set; `None` where
/// the call is inside another one, or can't be recorded.
#[inline(always)]
pub fn enter(ctx: &ProbeContext, caller: Caller, sp: u64) -> Option<&'static mut ThreadState> {
    let state = match caller.state() {
        Some(state) => state,
        None => begin(ctx, caller)?,
    };
    if state.sp != 0 {
        if sp < state.sp && is_internal(ctx, sp) && is_pending(state) {
            count(Counter::NestedCalls);
            return None;
        }
        // Where not all calls are recorded, a tail call does not come here.
        if sp == state.sp && !sample::is_partial() && (state.returns_to == 0 || is_pending(state)) {
            // A tail call, which its caller can't tell from one call: the stack stays as it was
            // taken, before the kernel put its trampoline in the place of the return address.
            give_back(state);
        } else {
            // One that may throw did, most probably: it found no memory.
            if state.returns_to != 0 {
                process::failed(caller.tgid());
            } else {
                count(Counter::AbandonedCalls);
            }
            abandon(state);
        }
    }
    Some(state)
}

/// Notes the pending call of a thread.
#[inline(always)]
pub fn pend(
    ctx: &ProbeContext,
    state: &mut ThreadState,
    sp: u64,
    call: u32,
    size: u64,
    pointer: u64,
    mean: u64,
) {
    // A function that rounds its size up, and jumps to another one with that, was asked for less.
    let is_handed_over =
        state.sp == sp && state.returns_to == 0 && state.call == call::ALLOC && call == call::ALLOC;
    state.returns_to = 0;
    state.freed = 0;
    if state.sp != sp {
        state.sp = sp;
        if mean != 0 {
            stack::take(ctx, sp, &mut state.stack, &mut state.walk);
            if sample::is_partial() && sample::is_inside(ctx, state) {
                count(Counter::NestedCalls);
                state.sp = 0;
                return;
            }
        }
    }
    state.mean = mean;
    state.call = call;
    if !is_handed_over {
        state.size = size;
    }
    state.pointer = pointer;
    state.taken = NO_BLOCK;
}

/// Forgets a pending call that will not return.
#[inline(always)]
pub fn abandon(state: &mut ThreadState) {
    give_back(state);
    state.sp = 0;
}

/// Puts back what realloc took out.
#[inline(always)]
fn give_back(state: &mut ThreadState) {
    if state.taken.id != 0 {
        live::put_back(state.process, state.pointer, state.taken);
        state.taken = NO_BLOCK;
    }
}

/// Whether a call comes from the allocator's own code, or is the tail call of a function that is
/// probed. Only such a call can be inside another one: what lies deeper in the stack is no proof, where
/// the other was left by longjmp.
#[inline(always)]
pub fn is_internal(ctx: &ProbeContext, sp: u64) -> bool {
    // SAFETY: the helper checks the address.
    let back = unsafe { bpf_probe_read_user(sp as *const u64) }.unwrap_or(0);
    is_trampoline(back) || is_own(ctx, back)
}

/// Whether an address is in the allocator's own file.
#[inline(always)]
pub fn is_own(ctx: &ProbeContext, address: u64) -> bool {
    // SAFETY: the helper checks what it is given; the kernel passes valid registers.
    let (reach, here) = unsafe { (bpf_get_attach_cookie(ctx.regs.cast()), (*ctx.regs).rip) };
    let (before, behind) = cookie::reach(reach);
    address >= here.wrapping_sub(before) && address < here.wrapping_add(behind)
}

/// Whether a return address is the kernel's trampoline.
#[inline(always)]
pub fn is_trampoline(address: u64) -> bool {
    address & !0xfff == TRAMPOLINE_PAGE
}

/// Whether the pending call is still under way, as far as its return address tells: while it is, the
/// kernel's trampoline stands there, or, without a return probe, what stood there at its entry.
#[inline(always)]
fn is_pending(state: &ThreadState) -> bool {
    // SAFETY: the helper checks the address.
    match unsafe { bpf_probe_read_user(state.sp as *const u64) } {
        Ok(slot) if state.returns_to != 0 => slot == state.returns_to,
        Ok(slot) => is_trampoline(slot),
        Err(_) => true,
    }
}

#[inline(always)]
fn begin(ctx: &ProbeContext, caller: Caller) -> Option<&'static mut ThreadState> {
    let process = process::serial(ctx, caller.tgid())?;
    let blank = BLANK.get(0)?;
    let inserted = THREADS.insert(caller.key, blank, u64::from(BPF_NOEXIST));
    let Some(state) = caller.state() else {
        let _ = inserted;
        count_and_warn!(
            ctx,
            Counter::ThreadMapFull,
            "the thread map is full: {} calls lost"
        );
        process::lost(caller.tgid());
        return None;
    };
    state.process = process;
    let first = Caller {
        key: caller.key & !0xffff_ffff | caller.key >> 32,
    };
    if first.key != caller.key
        && let Some(first) = first.state()
    {
        seen::inherit(&mut state.walk, &first.walk);
    }
    Some(state)
}

/// Forgets a thread that ends, or whose program does.
#[inline(always)]
pub fn end(_: &impl EbpfContext, key: u64) {
    let _ = THREADS.remove(key);
}
