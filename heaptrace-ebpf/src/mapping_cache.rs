//! The mappings that a thread's walks went through last.
//!
//! Asking the kernel for the mapping of an address takes longer than the rest of a frame. So a mapping that
//! was looked up since the address space last changed is not looked up again. While another thread changes
//! the mappings, the kernel can't be asked, and a program that returns much memory changes them most of the
//! time. Then the kernel's record of an older cached mapping tells whether that mapping is still there.

use aya_ebpf::helpers::generated::bpf_get_current_task_btf;
use heaptrace_common::{
    limits::CACHED_MAPPINGS,
    wire::{Mapping, WalkState},
};

use crate::globals::{MM_LOCK_SEQ, TASK_MM};

/// Whether the address space is unchanged since the last walk; false if the kernel does not tell. If it
/// changed, no cached mapping is current any more.
#[inline(always)]
pub fn check_space(state: &mut WalkState) -> bool {
    // Read without a helper: the verifier knows the types, and it knows that the offsets are constants.
    // SAFETY: the current task is valid, and its address space, too, if it has one; offsets come from the
    // kernel's BTF.
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
            _ => state.space_version.wrapping_add(1),
        };
        (space as u64, version)
    };
    let is_same = state.space == space && state.space_version == version;
    if !is_same {
        state.space = space;
        state.space_version = version;
        state.is_current = 0;
    }
    is_same
}

/// Makes the cached mapping of an address the walk's current mapping, if it was looked up since the address
/// space last changed.
#[inline(always)]
pub fn find_current(state: &mut WalkState, address: u64) -> bool {
    for index in 0..CACHED_MAPPINGS {
        let cached = &state.cached[index];
        if state.is_current & 1 << index != 0 && address >= cached.start && address < cached.end {
            copy(&mut state.mapping, cached);
            return true;
        }
    }
    false
}

/// Caches the walk's current mapping. It replaces a mapping that it overlaps, or else the oldest one. Unless it was looked up
/// under the kernel's lock, it is not current in the next walk.
#[inline(always)]
pub fn store(state: &mut WalkState, is_current: bool) {
    let mut slot = state.next_cached as usize % CACHED_MAPPINGS;
    let mut is_new = 1;
    for index in 0..CACHED_MAPPINGS {
        let cached = &mut state.cached[index];
        if cached.start < state.mapping.end && state.mapping.start < cached.end {
            if *cached == state.mapping {
                state.is_current |= u64::from(is_current) << index;
                return;
            }
            cached.end = 0;
            state.is_current &= !(1 << index);
            slot = index;
            is_new = 0;
        }
    }
    state.next_cached = state.next_cached.wrapping_add(is_new);
    if let Some(cached) = state.cached.get_mut(slot) {
        // A new thread may be copying it: with an end of 0 it is no mapping.
        let mapping = state.mapping;
        // SAFETY: a reference is valid to write to.
        unsafe { (&raw mut cached.end).write_volatile(0) };
        cached.start = mapping.start;
        cached.offset = mapping.offset;
        cached.file = mapping.file;
        cached.record = mapping.record;
        // SAFETY: as above.
        unsafe { (&raw mut cached.end).write_volatile(mapping.end) };
        state.is_current = state.is_current & !(1 << slot) | u64::from(is_current) << slot;
    }
}

/// Makes the cached mapping of an address the walk's current mapping, current or not; false if there is none.
#[inline(always)]
pub fn find_any(state: &mut WalkState, address: u64) -> bool {
    for index in 0..CACHED_MAPPINGS {
        let cached = &state.cached[index];
        if address >= cached.start && address < cached.end {
            copy(&mut state.mapping, cached);
            return true;
        }
    }
    false
}

/// Copies a mapping field by field. To copy the whole struct, the compiler calls a function that copies byte
/// by byte.
#[inline(always)]
fn copy(to: &mut Mapping, from: &Mapping) {
    to.start = from.start;
    to.end = from.end;
    to.offset = from.offset;
    to.file.inode = from.file.inode;
    to.file.device = from.file.device;
    to.file.version = from.file.version;
    to.record = from.record;
}

/// Removes all cached mappings.
#[inline(always)]
pub fn clear(state: &mut WalkState) {
    for index in 0..CACHED_MAPPINGS {
        state.cached[index].end = 0;
    }
}

/// Gives a new thread the cached mappings of another thread of its process.
#[inline(always)]
pub fn copy_all(state: &mut WalkState, other: &WalkState) {
    for index in 0..CACHED_MAPPINGS {
        let (from, to) = (&raw const other.cached[index], &mut state.cached[index]);
        // SAFETY: the other thread's state is a map value, whichever thread it belongs to by now. If it is
        // written meanwhile, its end is 0, or its start differs afterwards.
        unsafe {
            let end = (&raw const (*from).end).read_volatile();
            let cached = from.read_volatile();
            if (&raw const (*from).end).read_volatile() == end
                && (&raw const (*from).start).read_volatile() == cached.start
                && cached.end == end
            {
                *to = cached;
            }
        }
    }
}
