//! The live blocks of a process, by their ids, in little memory.
//!
//! Stage: join. A program can have tens of millions of blocks, so each uses a slot of 32 bytes in an open
//! hash table, which is never less than two thirds full. The table consists of many small ones (shards). A
//! full shard grows by a quarter, and with more blocks one shard after the other is split in two. So only one
//! shard at a time is in memory twice, and no event waits for more than one copy. Knows nothing of sums.

mod block;
mod shard;
mod shared;

pub(super) use block::Block;
use shard::{Shard, Slot};
use shared::{SharedTable, SharedValues};

use super::keyed_hash::{HashMap, KeyedHash};

/// Another shard is added for each so many blocks.
const BLOCKS_PER_SHARD: usize = 8192;

/// The live blocks of a process.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// At least one after the first block.
    shards: Vec<Shard>,
    /// Blocks in the shards.
    len: usize,
    /// A program chooses which of its blocks stay live, so their distribution needs a secret key.
    hash: KeyedHash,
    shared: SharedTable,
    /// Blocks that don't fit into a slot: those of 4 GiB and more, and those at high addresses, which a
    /// program only gets if it asks for them.
    odd: HashMap<u64, Block>,
}

impl Blocks {
    /// Adds a block. It replaces one with the same id.
    pub(super) fn insert(&mut self, id: u64, block: Block) {
        if !self.odd.is_empty() {
            self.odd.remove(&id);
        }
        let shared = SharedValues {
            mean: block.mean,
            pauses: block.pauses,
            epoch: shard::epoch(block.time),
            is_reallocated: block.is_reallocated,
            mark: block.mark,
        };
        let Some(slot) = Slot::new(id, &block, || self.shared.index(shared)) else {
            self.remove(id);
            self.odd.insert(id, block);
            return;
        };
        if self.len >= self.shards.len() * BLOCKS_PER_SHARD {
            self.add_shard();
        }
        let index = self.shard_of(self.hash.of_number(id));
        if let Some(shard) = self.shards.get_mut(index) {
            match shard.insert(slot, self.hash) {
                Some(old) => drop(self.shared.release(old.shared())),
                None => self.len += 1,
            }
        }
    }

    /// Removes a block.
    pub(super) fn remove(&mut self, id: u64) -> Option<Block> {
        let index = self.shard_of(self.hash.of_number(id));
        let slot = self
            .shards
            .get_mut(index)
            .and_then(|shard| shard.remove(id, self.hash));
        let Some(slot) = slot else {
            return if self.odd.is_empty() {
                None
            } else {
                self.odd.remove(&id)
            };
        };
        self.len -= 1;
        Some(unpacked(&slot, self.shared.release(slot.shared())))
    }

    /// A block, by its id.
    pub(super) fn get(&self, id: u64) -> Option<Block> {
        let index = self.shard_of(self.hash.of_number(id));
        match self.shards.get(index).and_then(|it| it.get(id, self.hash)) {
            Some(slot) => Some(unpacked(slot, self.shared.get(slot.shared()))),
            None => self.odd.get(&id).copied(),
        }
    }

    /// All blocks with their ids, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Block)> {
        let slots = self.shards.iter().flat_map(Shard::iter);
        let slots = slots.map(|it| (it.id(), unpacked(it, self.shared.get(it.shared()))));
        slots.chain(self.odd.iter().map(|(id, block)| (*id, *block)))
    }

    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.len + self.odd.len()
    }

    /// The addresses of all blocks. The memory of each shard is freed after its last address.
    pub(super) fn into_addresses(self) -> impl Iterator<Item = u64> {
        let odd = self.odd.into_values().map(|block| block.address);
        let shards = self.shards.into_iter();
        shards.flat_map(Shard::into_addresses).chain(odd)
    }

    /// The shard of a hash. The number of shards need not be a power of two: the shards that are not split
    /// yet have twice the share of the others.
    fn shard_of(&self, hash: u64) -> usize {
        let mask = self.shards.len().next_power_of_two().wrapping_sub(1);
        let index = hash as usize & mask;
        if index < self.shards.len() {
            index
        } else {
            index & (mask >> 1)
        }
    }

    fn add_shard(&mut self) {
        let new = self.shards.len();
        let mut added = Shard::default();
        // The first shard has no other one to split.
        if let Some(power) = new.checked_ilog2() {
            let bit = 1 << power;
            if let Some(split) = self.shards.get_mut(new - bit) {
                added = split.split(bit as u64, self.hash);
            }
        }
        self.shards.push(added);
    }
}

fn unpacked(slot: &Slot, shared: SharedValues) -> Block {
    Block {
        site: slot.site(),
        address: slot.address(),
        size: u64::from(slot.size),
        mean: shared.mean,
        pauses: shared.pauses,
        time: slot.time(shared.epoch),
        tid: slot.tid(),
        is_reallocated: shared.is_reallocated,
        mark: shared.mark,
    }
}

#[cfg(test)]
mod tests;
