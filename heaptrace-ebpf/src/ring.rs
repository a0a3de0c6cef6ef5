//! When the agent is woken for what stands in the ring.
//!
//! To wake it costs the traced thread an interrupt to its own processor, which in a virtual machine is several times the
//! price of all else that is done at a probe. So it is woken when it has been left alone for a while, not for each record.

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};

use crate::{
    globals::RING_CROWDED_BYTES,
    maps::{EVENTS, LAST_WAKE},
};

/// Flag of a record that nobody is woken for.
pub const QUIETLY: u64 = BPF_RB_NO_WAKEUP as u64;

/// Flag of a record that the agent must see at once.
pub const AT_ONCE: u64 = BPF_RB_FORCE_WAKEUP as u64;

/// How long a call may wait to be counted.
const PATIENCE: u64 = 10_000_000;

/// How long a new stack may wait: the files that it goes through are opened when it is seen, and the process may end.
const PATIENCE_WITH_STACKS: u64 = 1_000_000;

/// How long anything may wait where the ring is filling up.
const PATIENCE_IN_A_CROWD: u64 = 100_000;

/// Flag of a record of a call made at this time.
#[inline(always)]
pub fn soon(now: u64) -> u64 {
    within(PATIENCE, now)
}

/// Flag of a stack that was not seen before.
#[inline(always)]
pub fn with_stacks(now: u64) -> u64 {
    within(PATIENCE_WITH_STACKS, now)
}

#[inline(always)]
fn within(patience: u64, now: u64) -> u64 {
    let Some(last) = LAST_WAKE.get_ptr_mut(0) else {
        return AT_ONCE;
    };
    let is_crowded =
        EVENTS.query(u64::from(BPF_RB_AVAIL_DATA)) > u64::from(RING_CROWDED_BYTES.load());
    let patience = if is_crowded {
        PATIENCE_IN_A_CROWD
    } else {
        patience
    };
    // SAFETY: the pointer comes from a lookup in this program. An aligned u64 is read and written whole. Where two
    // processors are here at a time, both wake the agent, and that is all.
    unsafe {
        if now < last.read_volatile().wrapping_add(patience) {
            return QUIETLY;
        }
        last.write_volatile(now);
    }
    AT_ONCE
}
