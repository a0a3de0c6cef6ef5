//! The live map: recorded blocks that are not freed.

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_EXIST, BPF_NOEXIST},
    programs::ProbeContext,
};
use heaptrace_common::{
    counters::Counter,
    wire::{Block, BlockKey, Free, ThreadState, flag, kind},
};

use crate::{
    counters::{count, count_and_warn},
    counting_filter, fast,
    kernel::now,
    maps::{EVENTS, LIVE},
    ring, sample,
};

/// Set in the keys of parked blocks: freed blocks that wait for the agent's sweep, and whose address may
/// already belong to another block. No user address has this bit.
const PARKED: u64 = 1 << 63;

/// Whether the map has an entry for an address.
#[inline(always)]
pub fn contains(process: u64, address: u64) -> bool {
    LIVE.get_ptr(BlockKey { address, process }).is_some()
}

/// Takes the block at an address out of the map, if it is live.
#[inline(always)]
pub fn take(process: u64, address: u64) -> Option<Block> {
    let key = BlockKey { address, process };
    // SAFETY: the entry is copied at once. If its memory was another block's by then (see `maps`), this key
    // has no entry left to remove.
    let block = unsafe { LIVE.get_ptr(key)?.read_volatile() };
    if block.freed_at != 0 {
        return None;
    }
    remove(key, block).then_some(block)
}

/// Adds a block. Returns the id of the block that it replaces, 0 if there is none.
///
/// An allocator returns an address again only after a free. So a replaced block proves a free that was not
/// seen.
#[inline(always)]
pub fn add(key: BlockKey, block: Block) -> Result<u64, i32> {
    const THERE: i32 = -17;
    match insert(key, block, u64::from(BPF_NOEXIST)) {
        Err(THERE) => {}
        added => return added.map(|()| 0),
    }
    let Some(stale) = confirmed(key) else {
        return insert(key, block, 0).map(|()| 0);
    };
    if stale.hint == 0 {
        insert(key, block, 0)?;
        // The existing entry was in the counting filter already.
        counting_filter::remove_block(key.address);
    } else {
        let hint = stale.hint;
        LIVE.insert(key, Block { hint, ..block }, u64::from(BPF_EXIST))
            .or_else(|_| insert(key, block, 0))?;
    }
    Ok(stale.id)
}

/// Every entry enters the map here.
#[inline(always)]
fn insert(key: BlockKey, block: Block, flags: u64) -> Result<(), i32> {
    counting_filter::add_block(key.address);
    let hint = fast::hint_of_caller(key.address);
    fast::change_hint(hint, key.address, 1);
    LIVE.insert(key, Block { hint, ..block }, flags)
        .inspect_err(|_| {
            counting_filter::remove_block(key.address);
            fast::change_hint(hint, key.address, -1);
        })
}

/// Every entry leaves the map here, except those that the agent takes. `block` is what it held. False if it was not there any more.
#[inline(always)]
fn remove(key: BlockKey, block: Block) -> bool {
    let is_removed = LIVE.remove(key).is_ok();
    if is_removed {
        counting_filter::remove_block(key.address);
        fast::change_hint(block.hint, key.address, -1);
    }
    is_removed
}

/// Puts back a block that [`take`] took out.
#[inline(always)]
pub fn put_back(process: u64, address: u64, block: Block) {
    let key = BlockKey { address, process };
    if insert(key, block, u64::from(BPF_NOEXIST)).is_err() {
        count(Counter::FreesLost);
    }
}

/// Flags of an event that frees a block.
#[inline(always)]
pub fn free_flags(state: &ThreadState, id: u64) -> u16 {
    if state.last_block == id && state.last_block_mark == sample::call_mark(state) {
        flag::TEMPORARY
    } else {
        0
    }
}

/// Sends the free of a block. Returns false if the ring is full.
#[inline(always)]
pub fn send_free(state: &ThreadState, tid: u32, id: u64) -> bool {
    let Some(mut event) = EVENTS.reserve::<Free>(0) else {
        return false;
    };
    let time = now();
    event.write(Free {
        kind: kind::FREE,
        flags: free_flags(state, id),
        tid,
        time,
        process: state.process,
        id,
    });
    event.submit(ring::soon(time));
    true
}

/// Frees the block at an address: sends an event and removes the entry, or, if the ring is full, marks the
/// entry. Returns false if the map has no live block at this address.
///
/// `is_nested` tells whether the call is inside another one. A library that wraps an allocator may put a header
/// before each block. Then a block of 0 bytes has the address at which the allocator's next block begins, and
/// only the library's own `free` can mean it.
#[inline(always)]
pub fn free(
    ctx: &ProbeContext,
    state: &ThreadState,
    tid: u32,
    address: u64,
    is_nested: impl FnOnce() -> bool,
) -> bool {
    let key = BlockKey {
        address,
        process: state.process,
    };
    // SAFETY: as in `take`.
    let Some(block) = LIVE
        .get_ptr(key)
        .map(|block| unsafe { block.read_volatile() })
    else {
        return false;
    };
    if block.freed_at != 0 || block.size == 0 && is_nested() {
        return false;
    }
    let Some(mut event) = EVENTS.reserve::<Free>(0) else {
        mark_freed(key, block);
        count_and_warn!(
            ctx,
            Counter::FreesMarked,
            "the ring is full: {} frees kept for a sweep"
        );
        return true;
    };
    // The thread that removes the entry sends the event: two threads that free one block (a bug of the
    // program) must not count twice.
    if !remove(key, block) {
        event.discard(ring::QUIETLY);
        return false;
    }
    let time = now();
    event.write(Free {
        kind: kind::FREE,
        flags: free_flags(state, block.id),
        tid,
        time,
        process: state.process,
        id: block.id,
    });
    event.submit(ring::soon(time));
    true
}

/// The block at an address, confirmed by a second read: if the entry was swept meanwhile, its memory may be
/// another block's (see `maps`), and no two blocks have the same id.
#[inline(always)]
pub fn confirmed(key: BlockKey) -> Option<Block> {
    // SAFETY: the entry is copied at once.
    let block = unsafe { LIVE.get_ptr(key)?.read_volatile() };
    // SAFETY: as above.
    let again = unsafe { LIVE.get_ptr(key)?.read_volatile() };
    (again.id == block.id).then_some(block)
}

/// Marks a block as freed, for the agent's sweep, if its entry is still there.
#[inline(always)]
pub fn mark_freed(key: BlockKey, block: Block) {
    let freed = Block {
        freed_at: now(),
        ..block
    };
    const NOT_THERE: i32 = -2;
    if let Err(error) = LIVE.insert(key, freed, u64::from(BPF_EXIST))
        && error != NOT_THERE
    {
        count(Counter::FreesLost);
    }
}

/// Keeps a block that [`take`] took out, and whose free could not be sent because the ring was full.
#[inline(always)]
pub fn park(ctx: &impl EbpfContext, process: u64, block: Block) {
    let key = BlockKey {
        address: PARKED | block.id,
        process,
    };
    let freed = Block {
        freed_at: now(),
        ..block
    };
    count_unsent_free(ctx, insert(key, freed, 0).is_ok());
}

/// Counts a free that the full ring had no room for. It was kept for the sweep, or it is lost.
#[inline(always)]
pub fn count_unsent_free(ctx: &impl EbpfContext, is_kept: bool) {
    if is_kept {
        count_and_warn!(
            ctx,
            Counter::FreesMarked,
            "the ring is full: {} frees kept for a sweep"
        );
    } else {
        count_and_warn!(
            ctx,
            Counter::FreesLost,
            "no room to keep them: {} frees lost"
        );
    }
}
