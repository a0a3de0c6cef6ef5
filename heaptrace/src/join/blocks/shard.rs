//! A part of a process's blocks: an open hash table that grows by a quarter.
//!
//! Stage: join. Collisions are looked for slot by slot. What is taken out leaves no mark: what stands behind it moves up.

use super::Block;
use crate::join::keyed_hash::KeyedHash;
use crate::join::update::SiteId;

/// The fewest slots.
const LEAST: usize = 8;

/// A block, packed, or none where the id is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    id: u64,
    /// The address, and in the lowest bits the index of its terms.
    packed: u64,
    site: u32,
    pub(super) size: u32,
}

/// Bits of an index of terms.
const TERMS_BITS: u32 = 16;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Not a power of two: a hash is scaled to them.
    slots: Box<[Slot]>,
    len: usize,
}

impl Slot {
    /// A block with the index of its terms, if that and the rest of it fit.
    pub(super) fn new(id: u64, block: &Block, terms: impl FnOnce() -> Option<u16>) -> Option<Self> {
        let size = u32::try_from(block.size).ok()?;
        if id == 0 || block.address >> (u64::BITS - TERMS_BITS) != 0 {
            return None;
        }
        Some(Self {
            id,
            packed: block.address << TERMS_BITS | u64::from(terms()?),
            site: block.site.0,
            size,
        })
    }

    pub(super) fn site(&self) -> SiteId {
        SiteId(self.site)
    }

    pub(super) fn address(&self) -> u64 {
        self.packed >> TERMS_BITS
    }

    pub(super) fn terms(&self) -> u16 {
        self.packed as u16
    }

    fn is_vacant(&self) -> bool {
        self.id == 0
    }
}

impl Shard {
    /// Puts a slot in; what had its id before comes out.
    pub(super) fn insert(&mut self, slot: Slot, key: KeyedHash) -> Option<Slot> {
        // Five sixths are full at most.
        if (self.len + 1) * 6 > self.slots.len() * 5 {
            self.resize((self.slots.len() * 5 / 4).max(LEAST), key);
        }
        let place = self.find(slot.id, key)?;
        let found = self.slots.get_mut(place)?;
        let old = std::mem::replace(found, slot);
        if !old.is_vacant() {
            return Some(old);
        }
        self.len += 1;
        None
    }

    /// Takes out what has an id.
    pub(super) fn remove(&mut self, id: u64, key: KeyedHash) -> Option<Slot> {
        let mut hole = self.find(id, key)?;
        let slot = self.slots.get(hole).copied()?;
        if slot.is_vacant() {
            return None;
        }
        let mut place = hole;
        loop {
            place = self.next(place);
            let other = self.slots.get(place).copied().unwrap_or_default();
            if other.is_vacant() {
                break;
            }
            // One that could stand in the hole is not looked for behind it.
            let home = self.home(other.id, key);
            if self.distance(home, place) >= self.distance(hole, place) {
                self.put(hole, other);
                hole = place;
            }
        }
        self.put(hole, Slot::default());
        self.len -= 1;
        if self.slots.len() > LEAST && self.len * 4 < self.slots.len() {
            self.resize((self.len * 3 / 2).max(LEAST), key);
        }
        Some(slot)
    }

    /// Moves those with a bit in their hash to another shard.
    pub(super) fn split(&mut self, bit: u64, key: KeyedHash) -> Self {
        let has_bit = |slot: &&Slot| key.of(slot.id) & bit != 0;
        let moved = self.iter().filter(has_bit).count();
        let mut parts = [
            Self::with_slots(slots_for(self.len - moved)),
            Self::with_slots(slots_for(moved)),
        ];
        for slot in self.iter() {
            parts[usize::from(has_bit(&slot))].add(*slot, key);
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

    /// How many slots there are.
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

    fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.is_vacant())
    }

    fn resize(&mut self, slots: usize, key: KeyedHash) {
        let mut resized = Self::with_slots(slots);
        for slot in self.iter() {
            resized.add(*slot, key);
        }
        *self = resized;
    }

    /// Adds one whose id is not there, where there is room.
    fn add(&mut self, slot: Slot, key: KeyedHash) {
        if let Some(place) = self.find(slot.id, key) {
            self.put(place, slot);
            self.len += 1;
        }
    }

    fn put(&mut self, place: usize, slot: Slot) {
        if let Some(old) = self.slots.get_mut(place) {
            *old = slot;
        }
    }

    /// Where an id stands, or would.
    fn find(&self, id: u64, key: KeyedHash) -> Option<usize> {
        let mut place = self.home(id, key);
        loop {
            let slot = self.slots.get(place)?;
            if slot.id == id || slot.is_vacant() {
                return Some(place);
            }
            place = self.next(place);
        }
    }

    /// Where an id is looked for first. By the upper bits of its hash: the lower ones tell its shard.
    fn home(&self, id: u64, key: KeyedHash) -> usize {
        (((key.of(id) >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    fn next(&self, place: usize) -> usize {
        let next = place + 1;
        if next == self.slots.len() { 0 } else { next }
    }

    /// From one slot forward to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        if from <= to {
            to - from
        } else {
            to + self.slots.len() - from
        }
    }
}

/// Slots for so many blocks, of which three quarters are full.
fn slots_for(blocks: usize) -> usize {
    (blocks * 4).div_ceil(3).max(LEAST)
}
