//! The step from a program to the one that it ends with.

use aya_ebpf::{macros::map, maps::ProgramArray, programs::ProbeContext};

use heaptrace_common::next;

use crate::{caller::Caller, thread};

/// The programs that others end with. The agent sets them before it attaches any probe.
#[map]
static NEXT_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(next::PROGRAMS, 0);

/// Ends this program, and goes on with the walk of the stack of the call that the thread has just entered.
#[inline(always)]
pub(super) fn walk_stack(ctx: &ProbeContext) {
    go_on(ctx, next::WALK);
}

/// Ends this program, and records the block that the pending call has returned already.
#[inline(always)]
pub(super) fn take_block(ctx: &ProbeContext) {
    go_on(ctx, next::TAKE_BLOCK);
}

#[inline(always)]
fn go_on(ctx: &ProbeContext, program: u32) {
    // SAFETY: no value here has to be dropped.
    unsafe { NEXT_PROGRAMS.tail_call(ctx, program) };
    // It returns only if there is no such program: the agent has ended.
    give_up();
}

#[inline(never)]
fn give_up() {
    if let Some(state) = Caller::current().and_then(Caller::state) {
        thread::abandon(state);
    }
}
