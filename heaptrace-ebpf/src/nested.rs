//! Declined calls inside a recorded call.
//!
//! Of libraries that wrap an allocator above each other, the calls between the outermost and the innermost are most
//! often declined. Their code must be known all the same: else a call from it looks as if the recorded call had been
//! left.

use aya_ebpf::programs::ProbeContext;

use crate::caller::{self, Caller};

/// Records the allocator of a declined call if the call is inside the thread's pending call, or continues it as a tail
/// call. Reached only while a recorded call is pending on this CPU.
#[inline(never)]
pub fn declined(ctx: &ProbeContext, sp: u64) {
    let Some(state) = Caller::current().and_then(Caller::state) else {
        return;
    };
    if state.sp == 0 || sp > state.sp || !caller::is_pending(state) {
        return;
    }
    if sp == state.sp || caller::is_internal(ctx, sp, |from| caller::is_entered_code(state, from)) {
        caller::enter_nested_allocator(ctx, state);
    }
}
