//! Keeping programs on the stack of the thread that they run for.
//!
//! Since Linux 6.13 the kernel gives programs of their kind a stack per CPU. Under a kprobe nothing else can run the same
//! program on that CPU meanwhile; under a uprobe it can, where the kernel preempts: two threads then write to one stack, and
//! what is lost is the count at best and the machine at worst (a wild pointer given to the ring buffer, seen on 6.18 and
//! 7.2). Programs that hold a tail call keep the thread's stack.

use aya_ebpf::{EbpfContext, Global, macros::map, maps::ProgramArray};

/// Has no entry, ever.
#[map]
static NOWHERE: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Never true. The compiler can't know, so the call stays in the program; the verifier does, and takes it out after it has
/// chosen the stack.
#[unsafe(no_mangle)]
static LEAVES: Global<u32> = Global::new(0);

/// To be called by every program of a uprobe.
#[inline(always)]
pub fn keep(ctx: &impl EbpfContext) {
    if LEAVES.load() != 0 {
        // SAFETY: nothing is there to be called, and nothing here to be dropped.
        unsafe { NOWHERE.tail_call(ctx, 0) };
    }
}
