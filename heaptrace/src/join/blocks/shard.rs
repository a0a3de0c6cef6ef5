//! A part of a process's blocks: an open hash table that grows by a quarter.
//!
//! Stage: join. A search goes on slot by slot after a collision. A removed block leaves no mark: the blocks
//! after it move up.

use super::block::Block;
use crate::join::keyed_hash::KeyedHash;
use crate::join::update::SiteId;

/// The fewest slots of a table.
const MIN_SLOTS: usize = 8;

/// A packed block; none if the id is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    id: u64,
    /// The address; in the lowest bits the index of its shared values.
    packed: u64,
    /// The time in units of 128 ns, without its upper bits; in the lowest bits the thread.
    born: u64,
    site: u32,
    pub(super) size: u32,
}

/// Bits of an index of shared values.
const INDEX_BITS: u32 = 16;

/// Bits of a thread's number: the kernel has no higher ones.
const THREAD_BITS: u32 = 22;

/// Bits of a time that are not kept.
const TIME_SHIFT: u32 = 7;

/// Bits of a time below those that blocks share, which change every six days.
const TIME_BITS: u32 = u64::BITS - THREAD_BITS + TIME_SHIFT;

/// The upper bits of a time.
pub(super) fn epoch(time: u64) -> u16 {
    (time >> TIME_BITS) as u16
}

/// A hash table of blocks.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Their number need not be a power of two: a hash is scaled to it.
    slots: Box<[Slot]>,
    len: usize,
}

impl Slot {
    /// A packed block, with the index of its shared values; none if it does not fit.
    pub(super) fn new(
        id: u64,
        block: &Block,
        shared: impl FnOnce() -> Option<u16>,
    ) -> Option<Self> {
        let size = u32::try_from(block.size).ok()?;
        let is_odd =
            block.address >> (u64::BITS - INDEX_BITS) != 0 || block.tid >> THREAD_BITS != 0;
        if id == 0 || is_odd {
            return None;
        }
        Some(Self {
            id,
            packed: block.address << INDEX_BITS | u64::from(shared()?),
            born: block.time >> TIME_SHIFT << THREAD_BITS | u64::from(block.tid),
            site: block.site.0,
            size,
        })
    }

    pub(super) fn site(&self) -> SiteId {
        SiteId(self.site)
    }

    pub(super) fn address(&self) -> u64 {
        self.packed >> INDEX_BITS
    }

    /// When the block was allocated, with the upper bits of the time.
    pub(super) fn time(&self, epoch: u16) -> u64 {
        u64::from(epoch) << TIME_BITS | self.born >> THREAD_BITS << TIME_SHIFT
    }

    /// The thread that allocated the block.
    pub(super) fn tid(&self) -> u32 {
        (self.born & ((1 << THREAD_BITS) - 1)) as u32
    }

    pub(super) fn shared(&self) -> u16 {
        self.packed as u16
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    fn is_vacant(&self) -> bool {
        self.id == 0
    }
}

impl Shard {
    /// Adds a block. Returns the one that had its id before.
    pub(super) fn insert(&mut self, slot: Slot, hash: KeyedHash) -> Option<Slot> {
        // Five sixths are full at most.
        if (self.len + 1) * 6 > self.slots.len() * 5 {
            self.resize((self.slots.len() * 5 / 4).max(MIN_SLOTS), hash);
        }
        let index = self.find(slot.id, hash)?;
        let old = std::mem::replace(self.slots.get_mut(index)?, slot);
        if !old.is_vacant() {
            return Some(old);
        }
        self.len += 1;
        None
    }

    /// Removes the block with an id.
    pub(super) fn remove(&mut self, id: u64, hash: KeyedHash) -> Option<Slot> {
        let mut hole = self.find(id, hash)?;
        let slot = self.slots.get(hole).copied()?;
        if slot.is_vacant() {
            return None;
        }
        let mut index = hole;
        loop {
            index = self.next(index);
            let other = self.slots.get(index).copied().unwrap_or_default();
            if other.is_vacant() {
                break;
            }
            // A search for this block would end at the hole, so the block moves there.
            let home = self.home(other.id, hash);
            if self.distance(home, index) >= self.distance(hole, index) {
                self.put(hole, other);
                hole = index;
            }
        }
        self.put(hole, Slot::default());
        self.len -= 1;
        if self.slots.len() > MIN_SLOTS && self.len * 4 < self.slots.len() {
            self.resize((self.len * 3 / 2).max(MIN_SLOTS), hash);
        }
        Some(slot)
    }

    /// The block with an id.
    pub(super) fn get(&self, id: u64, hash: KeyedHash) -> Option<&Slot> {
        let slot = self.slots.get(self.find(id, hash)?)?;
        (!slot.is_vacant()).then_some(slot)
    }

    /// Moves the blocks with a bit in their hash to another shard.
    pub(super) fn split(&mut self, bit: u64, hash: KeyedHash) -> Self {
        let has_bit = |slot: &&Slot| hash.of_number(slot.id) & bit != 0;
        let moved = self.iter().filter(has_bit).count();
        let mut parts = [
            Self::with_slots(slots_for(self.len - moved)),
            Self::with_slots(slots_for(moved)),
        ];
        for slot in self.iter() {
            parts[usize::from(has_bit(&slot))].add(*slot, hash);
        }
        let [left, right] = parts;
        *self = left;
        right
    }

    pub(super) fn into_addresses(self) -> impl Iterator<Item = u64> {
        let slots = self.slots.into_iter();
        slots
            .filter(|slot| !slot.is_vacant())
            .map(|slot| slot.address())
    }

    /// The number of slots.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    fn with_slots(slots: usize) -> Self {
        Self {
            slots: vec![Slot::default(); slots].into_boxed_slice(),
            len: 0,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.is_vacant())
    }

    fn resize(&mut self, slots: usize, hash: KeyedHash) {
        let mut resized = Self::with_slots(slots);
        for slot in self.iter() {
            resized.add(*slot, hash);
        }
        *self = resized;
    }

    /// Adds a block with a new id, without growing.
    fn add(&mut self, slot: Slot, hash: KeyedHash) {
        if let Some(index) = self.find(slot.id, hash) {
            self.put(index, slot);
            self.len += 1;
        }
    }

    fn put(&mut self, index: usize, slot: Slot) {
        if let Some(old) = self.slots.get_mut(index) {
            *old = slot;
        }
    }

    /// The slot of an id, or the vacant slot where it belongs.
    fn find(&self, id: u64, hash: KeyedHash) -> Option<usize> {
        let mut index = self.home(id, hash);
        loop {
            let slot = self.slots.get(index)?;
            if slot.id == id || slot.is_vacant() {
                return Some(index);
            }
            index = self.next(index);
        }
    }

    /// The slot where the search for an id begins. It depends on the upper bits of the hash: the lower bits
    /// choose the shard.
    fn home(&self, id: u64, hash: KeyedHash) -> usize {
        (((hash.of_number(id) >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    fn next(&self, index: usize) -> usize {
        let next = index + 1;
        if next == self.slots.len() { 0 } else { next }
    }

    /// The number of steps forward from one slot to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        if from <= to {
            to - from
        } else {
            to + self.slots.len() - from
        }
    }
}

/// The number of slots for some blocks, so that three quarters are full.
fn slots_for(blocks: usize) -> usize {
    (blocks * 4).div_ceil(3).max(MIN_SLOTS)
}
