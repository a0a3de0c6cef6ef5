//! Threads: the pending call of each, and which calls are inside others.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_user, generated::bpf_get_attach_cookie},
    programs::ProbeContext,
};
use heaptrace_common::{
    cookie,
    counters::Counter,
    trampoline::is_trampoline,
    wire::{ThreadState, call},
};

use crate::{
    counters::{count, count_and_warn},
    globals::AGENT_TGID,
    live,
    maps::{BLANK, GATE, MAP_CALLS, THREADS},
    places, process, sample, seen, stack,
};

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
        // SAFETY: only the thread itself changes its state, and removes it, and it runs one program at a time.
        THREADS
            .get_ptr_mut(self.key)
            .map(|state| unsafe { &mut *state })
    }
}

/// Whether calls are recorded, and those of the current thread, too.
#[inline(always)]
pub fn is_recorded() -> bool {
    GATE.get(0).is_some_and(|gate| *gate != 0)
        && match AGENT_TGID.load() {
            0 => true,
            agent => (bpf_get_current_pid_tgid() >> 32) as u32 != agent,
        }
}

/// State of the thread, made where there is none yet; `None` where it can't be recorded.
#[inline(always)]
pub fn state(ctx: &ProbeContext, caller: Caller) -> Option<&'static mut ThreadState> {
    match caller.state() {
        Some(state) => Some(state),
        None => begin(ctx, caller),
    }
}

/// State of the thread at the entry of an allocator function, its stack pointer set; `None` where
/// the call is inside another one, or can't be recorded.
#[inline(always)]
pub fn enter(ctx: &ProbeContext, caller: Caller, sp: u64) -> Option<&'static mut ThreadState> {
    let state = state(ctx, caller)?;
    if state.sp != 0 {
        if sp < state.sp && is_internal(ctx, sp) && is_pending(state) {
            count(Counter::NestedCalls);
            return None;
        }
        // Where not all calls are recorded, a tail call comes here only from a function without a return probe.
        let is_tail_call = sp == state.sp
            && match state.returns_to {
                0 => !sample::is_partial(),
                _ => is_pending(state),
            };
        if is_tail_call {
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
        places::add_call(sp);
        if mean != 0 {
            stack::take(ctx, sp, &mut state.stack, &mut state.walk);
            if sample::is_partial() && sample::is_inside(ctx, state) {
                count(Counter::NestedCalls);
                settle(state);
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
    state.taken.id = 0;
}

/// Forgets a pending call that will not return.
#[inline(always)]
pub fn abandon(state: &mut ThreadState) {
    give_back(state);
    settle(state);
}

/// Notes that no call of a thread is pending any more.
#[inline(always)]
pub fn settle(state: &mut ThreadState) {
    if state.sp != 0 {
        places::remove_call(state.sp);
        state.sp = 0;
    }
}

/// Puts back what realloc took out.
#[inline(always)]
fn give_back(state: &mut ThreadState) {
    if state.taken.id != 0 {
        live::put_back(state.process, state.pointer, state.taken);
        state.taken.id = 0;
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

/// Whether the pending call is still under way, as far as its return address tells: while it is, the
/// kernel's trampoline stands there, or, without a return probe, what stood there at its entry.
#[inline(always)]
pub fn is_pending(state: &ThreadState) -> bool {
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
        // If it ended just now, its memory may be a thread's of another process (see `maps`).
        // SAFETY: a reference is valid to read from.
        if unsafe { (&raw const first.process).read_volatile() } != process {
            seen::forget(&mut state.walk);
        }
    }
    Some(state)
}

/// Forgets a thread that ends, or whose program does.
#[inline(always)]
pub fn end(key: u64) {
    if let Some(state) = (Caller { key }).state() {
        settle(state);
    }
    let _ = THREADS.remove(key);
    let _ = MAP_CALLS.remove(key);
}
