//! The kernel's record of a mapping, from its tree of mappings, without the lock.
//!
//! While a thread changes the mappings of its process, or waits for its turn to do so, the kernel's helper has no answer. With more threads
//! than processors that can take milliseconds. The kernel itself searches this tree (a maple tree) without the lock when a page is touched:
//! its nodes and records are not reused before the programs that run now have ended. The record may be removed or changed at the same
//! time, so its reader must check it afterwards.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::helpers::generated::{self, bpf_loop};
use heaptrace_common::wire::{NO_WINDOW, StackWindow, WINDOW_SLOTS, WalkState};

use crate::{
    globals::MM_MAPPING_TREE,
    kernel::read,
    walk::{CONTINUE, STOP},
};

/// Levels of a tree, at most. A million mappings need seven, if each node is half full.
const LEVELS: u32 = 8;

/// Bytes of a node, which is aligned to them. What points to it has its kind below.
const NODE_BYTES: u64 = 256;

/// Kinds of nodes.
mod node {
    pub const LEAF: u64 = 1;
    pub const INNER: u64 = 2;
    /// An inner node that knows the gaps between mappings, too, and has less room for others.
    pub const INNER_WITH_GAPS: u64 = 3;
}

/// A search in progress.
struct Search<'a> {
    /// Where nodes are copied to.
    window: &'a mut StackWindow,
    address: u64,
    /// What points to the next node; at the end to the record.
    entry: u64,
    is_done: bool,
}

/// The address of the kernel's record of the mapping that has an address, in the current process; 0 if there is none, or if the kernel has
/// another kind of tree (before 6.1).
#[inline(always)]
pub fn record(state: &mut WalkState, address: u64) -> u64 {
    let tree = MM_MAPPING_TREE.load();
    if tree == 0 {
        return 0;
    }
    // SAFETY: the offset comes from the kernel's BTF, and the helper checks the address.
    let entry = unsafe { read::<u64>(state.space, tree) };
    let mut search = Search {
        window: &mut state.window,
        address,
        entry,
        is_done: false,
    };
    // Its content is a piece of the stack no more.
    search.window.start = NO_WINDOW;
    // SAFETY: the callback gets the search, which outlives the loop.
    unsafe {
        bpf_loop(
            LEVELS,
            descend as *mut c_void,
            (&raw mut search).cast::<c_void>(),
            0,
        );
    }
    // The kernel marks a place without a mapping that it keeps free for one.
    let is_record = search.is_done && search.entry & 3 == 0;
    if is_record { search.entry } else { 0 }
}

/// Goes down one level.
#[inline(never)]
extern "C" fn descend(_: u32, search: *mut c_void) -> i64 {
    // SAFETY: `record` passes a search.
    let search = unsafe { &mut *search.cast::<Search<'_>>() };
    let kind = search.entry >> 3 & 15;
    let ends = match kind {
        node::LEAF | node::INNER => 15,
        node::INNER_WITH_GAPS => 9,
        _ => return STOP,
    };
    let slots = &mut search.window.slots;
    // SAFETY: the helper checks the address, and the slots have at least this size.
    let read = unsafe {
        generated::bpf_probe_read_kernel(
            slots.as_mut_ptr().cast::<c_void>(),
            NODE_BYTES as u32,
            (search.entry & !(NODE_BYTES - 1)) as *const c_void,
        )
    };
    if read != 0 {
        return STOP;
    }
    // A node has its parent, the last addresses of all parts but the last one, and what is there.
    let mut part = 0;
    while part < ends && slots[black_box(1 + part) & (WINDOW_SLOTS - 1)] < search.address {
        part += 1;
    }
    search.entry = slots[black_box(1 + ends + part) & (WINDOW_SLOTS - 1)];
    search.is_done = kind == node::LEAF;
    if search.is_done { STOP } else { CONTINUE }
}
