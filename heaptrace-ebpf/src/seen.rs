//! The mappings that a thread's walks went through last.
//!
//! The kernel can't be asked what stands at an address while another thread changes the mappings, and a program that
//! gives much memory back does little else. Then what was seen before counts: code hardly ever moves.

use heaptrace_common::{limits::MAPPINGS_SEEN, wire::WalkState};

/// Notes the mapping at hand, in the place of one that it overlaps, or else of the oldest.
#[inline(always)]
pub fn remember(state: &mut WalkState) {
    let mut place = state.next_seen as usize % MAPPINGS_SEEN;
    let mut is_new = 1;
    for index in 0..MAPPINGS_SEEN {
        let seen = &mut state.seen[index];
        if seen.start < state.mapping.end && state.mapping.start < seen.end {
            if *seen == state.mapping {
                return;
            }
            seen.end = 0;
            place = index;
            is_new = 0;
        }
    }
    state.next_seen = state.next_seen.wrapping_add(is_new);
    if let Some(seen) = state.seen.get_mut(place) {
        // Another thread may be about to inherit it: without an end it is none.
        let mapping = state.mapping;
        // SAFETY: a reference is valid to write to.
        unsafe { (&raw mut seen.end).write_volatile(0) };
        seen.start = mapping.start;
        seen.offset = mapping.offset;
        seen.file = mapping.file;
        // SAFETY: as above.
        unsafe { (&raw mut seen.end).write_volatile(mapping.end) };
    }
}

/// Takes the mapping of an address for the one at hand; false where none was seen there.
#[inline(always)]
pub fn recall(state: &mut WalkState, address: u64) -> bool {
    for index in 0..MAPPINGS_SEEN {
        let seen = state.seen[index];
        if address >= seen.start && address < seen.end {
            state.mapping = seen;
            return true;
        }
    }
    false
}

/// Lets a new thread begin with what another one of its process has seen.
#[inline(always)]
pub fn inherit(state: &mut WalkState, other: &WalkState) {
    for index in 0..MAPPINGS_SEEN {
        let (from, to) = (&raw const other.seen[index], &mut state.seen[index]);
        // SAFETY: the other thread's state is a map's value, which stays. It may be written meanwhile: then its end is
        // 0, or its start another afterwards.
        unsafe {
            let end = (&raw const (*from).end).read_volatile();
            let seen = from.read_volatile();
            if (&raw const (*from).end).read_volatile() == end
                && (&raw const (*from).start).read_volatile() == seen.start
                && seen.end == end
            {
                *to = seen;
            }
        }
    }
}
