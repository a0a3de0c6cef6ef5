//! The live map: what is allocated and not freed.

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_EXIST, BPF_NOEXIST},
    helpers::generated::bpf_ktime_get_ns,
    programs::ProbeContext,
};
use heaptrace_common::{
    counters::Counter,
    wire::{Block, BlockKey, Free, ThreadState, flag, kind},
};

use crate::{
    counters::{count, count_and_warn},
    maps::{EVENTS, LIVE},
    places, ring, sample,
};

/// Set in the address of keys under which freed blocks wait to be swept whose own address may
/// already belong to another block. No user address has it.
const PARKED: u64 = 1 << 63;

/// Whether something is known of an address.
#[inline(always)]
pub fn knows(process: u64, address: u64) -> bool {
    LIVE.get_ptr(BlockKey { address, process }).is_some()
}

/// Takes the block at an address out of the map, if a live one is there.
#[inline(always)]
pub fn take(process: u64, address: u64) -> Option<Block> {
    let key = BlockKey { address, process };
    // SAFETY: the entry is copied at once. If it was another block's by then (see `maps`), none is left to remove
    // under this key.
    let block = unsafe { LIVE.get_ptr(key)?.read_volatile() };
    if block.freed_at != 0 {
        return None;
    }
    remove(key).then_some(block)
}

/// Enters a block. Returns the id of the one that was found there, 0 where there was none.
///
/// The allocator hands an address out again only after a free: one that was not seen is proven by this.
#[inline(always)]
pub fn enter(key: BlockKey, block: Block) -> Result<u64, i32> {
    const THERE: i32 = -17;
    match insert(key, block, u64::from(BPF_NOEXIST)) {
        Err(THERE) => {}
        entered => return entered.map(|()| 0),
    }
    let stale = look(key).map_or(0, |it| it.id);
    // One that is still there is counted already.
    if stale == 0 || LIVE.insert(key, block, u64::from(BPF_EXIST)).is_err() {
        insert(key, block, 0)?;
    }
    Ok(stale)
}

/// Every entry gets here into the map.
#[inline(always)]
fn insert(key: BlockKey, block: Block, flags: u64) -> Result<(), i32> {
    places::add_block(key.address);
    LIVE.insert(key, block, flags)
        .inspect_err(|_| places::remove_block(key.address))
}

/// Every entry that the agent does not take goes here. False where it was not there any more.
#[inline(always)]
fn remove(key: BlockKey) -> bool {
    let is_removed = LIVE.remove(key).is_ok();
    if is_removed {
        places::remove_block(key.address);
    }
    is_removed
}

/// Puts a block back that [`take`] took out.
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
    if state.last_id == id && state.last_mark == sample::mark() {
        flag::TEMPORARY
    } else {
        0
    }
}

/// Sends the free of a block. Returns false where the ring has no place.
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

/// Frees the block at an address: an event and no entry, or, where the ring is full, a marked
/// entry. Returns false where no live block is known there.
#[inline(always)]
pub fn free(ctx: &ProbeContext, state: &ThreadState, tid: u32, address: u64) -> bool {
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
    if block.freed_at != 0 {
        return false;
    }
    let Some(mut event) = EVENTS.reserve::<Free>(0) else {
        mark(key, block);
        count_and_warn!(
            ctx,
            Counter::FreesMarked,
            "the ring is full: {} frees kept for a sweep"
        );
        return true;
    };
    // Who removes the entry sends the event: two threads that free one block (a bug of the
    // program) must not count twice.
    if !remove(key) {
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

/// The block at an address, if it is certain that it is there: an entry that was swept meanwhile may be another
/// block's (see `maps`), and no two blocks have one id.
#[inline(always)]
pub fn look(key: BlockKey) -> Option<Block> {
    // SAFETY: the entry is copied at once.
    let block = unsafe { LIVE.get_ptr(key)?.read_volatile() };
    // SAFETY: as above.
    let again = unsafe { LIVE.get_ptr(key)?.read_volatile() };
    (again.id == block.id).then_some(block)
}

/// Marks a block as freed, to be swept by the agent, if it is still there.
#[inline(always)]
pub fn mark(key: BlockKey, block: Block) {
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

/// Keeps a block that [`take`] took out and whose free found no place in the ring.
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
    count_unsent(ctx, insert(key, freed, 0).is_ok());
}

/// Counts a free that found no place in the ring, and was kept elsewhere or was not.
#[inline(always)]
pub fn count_unsent(ctx: &impl EbpfContext, is_kept: bool) {
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
            "no place to keep them: {} frees lost"
        );
    }
}

/// Nanoseconds on the monotonic clock.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
