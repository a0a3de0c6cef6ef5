//! Keeps programs on the stack of the thread that they run for.
//!
//! Since Linux 6.13 the kernel gives programs of this kind a stack per CPU. Under a kprobe that is safe:
//! nothing else can run the same program on that CPU meanwhile. Under a uprobe it is not, if the kernel
//! preempts: two threads then write to one stack. At best that loses a count; at worst it crashes the machine
//! (a wild pointer passed to the ring buffer, seen on 6.18 and 7.2). Programs that contain a tail call keep
//! the thread's stack.

use aya_ebpf::{EbpfContext, Global, macros::map, maps::ProgramArray};

/// Always empty.
#[map]
static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Always 0. The compiler can't know that, so the tail call stays in the program. The verifier knows it, and
/// removes the call after it has chosen the stack.
#[unsafe(no_mangle)]
static TAIL_CALLS: Global<u32> = Global::new(0);

/// Every uprobe program must call this.
#[inline(always)]
pub fn keep(ctx: &impl EbpfContext) {
    if TAIL_CALLS.load() != 0 {
        // SAFETY: there is no program to call, and no value here to drop.
        unsafe { NO_PROGRAMS.tail_call(ctx, 0) };
    }
}
