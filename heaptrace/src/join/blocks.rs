//! The live blocks of a process, by their ids, in little memory.
//!
//! Stage: join. A program can have tens of millions of blocks, so each takes a slot of 24 bytes in an open hash
//! table, which is never less than two thirds full. The table is many small ones (shards): each grows by a quarter when it is full, and
//! one after the other is split in two as there are more blocks, so that no more than one of them is ever there twice, and no
//! event waits for more than one to be copied. Knows nothing of what blocks add up to.

mod shard;
mod terms;

use shard::{Shard, Slot};
use terms::Terms;

use super::keyed_hash::{HashMap, KeyedHash};
use super::update::SiteId;

/// Blocks by which the number of shards grows by one.
const BLOCKS_PER_SHARD: usize = 8192;

/// A block that was allocated and not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) site: SiteId,
    pub(super) address: u64,
    pub(super) size: u64,
    /// Mean that it was sampled at.
    pub(super) mean: u64,
    /// How often its process had been left alone when it was allocated.
    pub(super) turn: u32,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// At least one once there was a block.
    shards: Vec<Shard>,
    /// Blocks in the shards.
    len: usize,
    /// A program can choose which of its blocks live, so how they are spread is secret.
    key: KeyedHash,
    terms: Terms,
    /// Blocks that don't fit into a slot: of 4 GiB and more, or at addresses that are given to none who doesn't ask for
    /// them.
    odd: HashMap<u64, Block>,
}

impl Blocks {
    /// Puts a block in; one that has its id goes.
    pub(super) fn insert(&mut self, id: u64, block: Block) {
        if !self.odd.is_empty() {
            self.odd.remove(&id);
        }
        let terms = || self.terms.index(block.mean, block.turn);
        let Some(slot) = Slot::new(id, &block, terms) else {
            self.remove(id);
            self.odd.insert(id, block);
            return;
        };
        if self.len >= self.shards.len() * BLOCKS_PER_SHARD {
            self.add_shard();
        }
        let place = self.shard_of(self.key.of(id));
        if let Some(shard) = self.shards.get_mut(place) {
            match shard.insert(slot, self.key) {
                Some(old) => drop(self.terms.release(old.terms())),
                None => self.len += 1,
            }
        }
    }

    /// Takes a block out.
    pub(super) fn remove(&mut self, id: u64) -> Option<Block> {
        let hash = self.key.of(id);
        let place = self.shard_of(hash);
        let slot = self
            .shards
            .get_mut(place)
            .and_then(|shard| shard.remove(id, self.key));
        let Some(slot) = slot else {
            return if self.odd.is_empty() {
                None
            } else {
                self.odd.remove(&id)
            };
        };
        self.len -= 1;
        let (mean, turn) = self.terms.release(slot.terms());
        Some(Block {
            site: slot.site(),
            address: slot.address(),
            size: u64::from(slot.size),
            mean,
            turn,
        })
    }

    /// The addresses of all blocks; the memory of those that were told is given back on the way.
    pub(super) fn into_addresses(self) -> impl Iterator<Item = u64> {
        let odd = self.odd.into_values().map(|block| block.address);
        let shards = self.shards.into_iter();
        shards.flat_map(Shard::into_addresses).chain(odd)
    }

    /// The shard that a hash belongs to. There are as many as are needed, not a power of two: those behind the
    /// last one split have twice the share of the others.
    fn shard_of(&self, hash: u64) -> usize {
        let mask = self.shards.len().next_power_of_two().wrapping_sub(1);
        let place = hash as usize & mask;
        if place < self.shards.len() {
            place
        } else {
            place & (mask >> 1)
        }
    }

    fn add_shard(&mut self) {
        let new = self.shards.len();
        let mut added = Shard::default();
        // The first one has none to take from.
        if let Some(power) = new.checked_ilog2() {
            let bit = 1 << power;
            if let Some(split) = self.shards.get_mut(new - bit) {
                added = split.split(bit as u64, self.key);
            }
        }
        self.shards.push(added);
    }
}

#[cfg(test)]
mod tests;
