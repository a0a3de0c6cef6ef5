//! The mappings that a thread's walks went through last.
//!
//! To ask the kernel what stands at an address takes longer than the rest of a frame, so what was seen since the address
//! space last changed is not asked again. And it can't be asked while another thread changes the mappings, and a program
//! that gives much memory back does little else. Then what was seen before counts: code hardly ever moves.

use aya_ebpf::helpers::generated::bpf_get_current_task_btf;
use heaptrace_common::{
    limits::MAPPINGS_SEEN,
    wire::{Mapping, WalkState},
};

use crate::globals::{MM_LOCK_SEQ, TASK_MM};

/// Whether the address space is the same as at the last walk. Where the kernel doesn't tell, it is not.
#[inline(always)]
pub fn check(state: &mut WalkState) -> bool {
    // Read without a helper: the verifier knows the types of these, and the offsets for the constants that they are.
    // SAFETY: the current task is valid, and so is its address space, if it has one; offsets come from the kernel's BTF.
    let (space, version) = unsafe {
        let task = bpf_get_current_task_btf().cast::<u8>();
        let space = task
            .byte_add(TASK_MM.load() as usize)
            .cast::<*const u8>()
            .read_volatile();
        let version = match MM_LOCK_SEQ.load() {
            offset if offset != 0 && !space.is_null() => {
                let version = space.byte_add(offset as usize).cast::<u32>();
                u64::from(version.read_volatile())
            }
            _ => state.version.wrapping_add(1),
        };
        (space as u64, version)
    };
    let is_same = state.space == space && state.version == version;
    if !is_same {
        state.space = space;
        state.version = version;
        state.current = 0;
    }
    is_same
}

/// Takes the mapping of an address for the one at hand, if it was seen since the address space last changed.
#[inline(always)]
pub fn find(state: &mut WalkState, address: u64) -> bool {
    for index in 0..MAPPINGS_SEEN {
        let seen = &state.seen[index];
        if state.current & 1 << index != 0 && address >= seen.start && address < seen.end {
            copy(&mut state.mapping, seen);
            return true;
        }
    }
    false
}

/// Notes the mapping at hand, in the place of one that it overlaps, or else of the oldest.
#[inline(always)]
pub fn remember(state: &mut WalkState) {
    let mut place = state.next_seen as usize % MAPPINGS_SEEN;
    let mut is_new = 1;
    for index in 0..MAPPINGS_SEEN {
        let seen = &mut state.seen[index];
        if seen.start < state.mapping.end && state.mapping.start < seen.end {
            if *seen == state.mapping {
                state.current |= 1 << index;
                return;
            }
            seen.end = 0;
            state.current &= !(1 << index);
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
        state.current |= 1 << place;
    }
}

/// Takes the mapping of an address for the one at hand; false where none was seen there.
#[inline(always)]
pub fn recall(state: &mut WalkState, address: u64) -> bool {
    for index in 0..MAPPINGS_SEEN {
        let seen = &state.seen[index];
        if address >= seen.start && address < seen.end {
            copy(&mut state.mapping, seen);
            return true;
        }
    }
    false
}

/// Copies a mapping number by number. For a copy of the whole the compiler calls a function that does it byte by byte.
#[inline(always)]
fn copy(to: &mut Mapping, from: &Mapping) {
    to.start = from.start;
    to.end = from.end;
    to.offset = from.offset;
    to.file.inode = from.file.inode;
    to.file.device = from.file.device;
    to.file.version = from.file.version;
}

/// Takes back that anything was seen.
#[inline(always)]
pub fn forget(state: &mut WalkState) {
    for index in 0..MAPPINGS_SEEN {
        state.seen[index].end = 0;
    }
}

/// Lets a new thread begin with what another one of its process has seen.
#[inline(always)]
pub fn inherit(state: &mut WalkState, other: &WalkState) {
    for index in 0..MAPPINGS_SEEN {
        let (from, to) = (&raw const other.seen[index], &mut state.seen[index]);
        // SAFETY: the other thread's state is a map's value, whoever's it is by now. It may be written meanwhile: then its
        // end is 0, or its start another afterwards.
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
