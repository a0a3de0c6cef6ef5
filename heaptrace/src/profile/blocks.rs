//! The blocks of a recording one by one: what is live at its end, and what was freed before at some addresses.
//!
//! Stage: profile. Made of the block changes in a data file; only commands that ask for single blocks read them. Knows nothing of
//! files and outputs.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::block_classes::{BlockClass, BlockClasses, BlockCondition};
use super::memory_blocks::{MemoryBlocks, MemoryReading, size_of_map};
use crate::join::{
    BlockChanges, BlockFate, BlockOwner, BornBlock, FreedBlock, HowFreed, Inspected, StackId,
};

/// Most freed blocks that are kept for each wanted address in each process: the last ones.
const MOST_FREED: usize = 64;

/// The memory of a sum, as so many blocks of a reading.
const CLASS: usize = 1 + size_of::<BlockClass>() / size_of::<PastBlock>();

/// The addresses whose freed blocks are wanted, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedBlocks {
    addresses: Vec<u64>,
    /// Whether the memory of processes is wanted, too.
    memory: bool,
    /// The conditions by which blocks are summed. With them, blocks are not wanted one by one.
    conditions: Vec<BlockCondition>,
}

impl WantedBlocks {
    /// Live blocks, and the freed ones that held one of these addresses.
    pub fn at(addresses: &[u64]) -> Self {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        Self {
            addresses,
            ..Self::default()
        }
    }

    /// Sums of the blocks that meet the same ones of these conditions. Those beyond [`BlockCondition::MOST`] are left out.
    pub fn classes(mut conditions: Vec<BlockCondition>) -> Self {
        conditions.truncate(BlockCondition::MOST);
        Self {
            conditions,
            ..Self::default()
        }
    }

    /// The same, and the memory of processes.
    pub fn with_memory(self) -> Self {
        Self {
            memory: true,
            ..self
        }
    }

    /// The wanted addresses in a block.
    fn within(&self, block: &BornBlock) -> &[u64] {
        let end = block.address.saturating_add(block.size.max(1));
        let from = self.addresses.partition_point(|it| *it < block.address);
        let to = self.addresses.partition_point(|it| *it < end);
        self.addresses.get(from..to).unwrap_or_default()
    }
}

/// A freed block, with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastBlock {
    /// The block.
    pub block: BornBlock,
    /// Its end.
    pub end: FreedBlock,
}

/// The blocks of a program image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessBlocks {
    /// The image.
    pub owner: BlockOwner,
    /// When it ended, nanoseconds since the run began. Its blocks are what it had not freed then.
    pub ended_ns: Option<u64>,
    /// Its live blocks, in the order of their addresses.
    pub blocks: Vec<BornBlock>,
    /// The freed blocks that held a wanted address, by that address, in the order of their ends.
    pub freed: BTreeMap<u64, Vec<PastBlock>>,
    /// How many more there were, by address.
    pub more_freed: BTreeMap<u64, u64>,
    /// Its memory when that was read last, if it was and is wanted.
    pub memory: Option<MemoryBlocks>,
    /// Its blocks by the conditions that they meet, if such sums are wanted: the live ones, and, if the file has all, the freed ones.
    pub classes: Vec<BlockClass>,
    /// What the memory of its live blocks told when they were inspected last, if they were.
    pub inspected: Option<Inspected>,
}

/// The blocks of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockList {
    /// The time that they are of, nanoseconds since the run began.
    pub at_ns: u64,
    /// Whether blocks that were allocated and freed between two updates are known, too.
    pub has_all: bool,
    /// When the file began, nanoseconds since the run began, if that was later than the run: what was freed before is not in it.
    pub began_ns: Option<u64>,
    /// The conditions of the classes.
    pub conditions: Vec<BlockCondition>,
    /// Each image with recorded blocks, in the order in which they began.
    pub processes: Vec<ProcessBlocks>,
}

impl BlockList {
    /// Leaves freed blocks out of the classes, where only a part of them is known, or where they are from before the part that is shown.
    pub fn forget_freed(&mut self) {
        for process in &mut self.processes {
            process.classes.retain(|it| !it.is_freed);
        }
    }
}

impl ProcessBlocks {
    /// The live block that holds an address. Of several, which only a damaged file has, the last one.
    pub fn holding(&self, address: u64) -> Option<&BornBlock> {
        let last = self.last_up_to(address);
        let block = self.blocks.get(last.checked_sub(1)?)?;
        (address - block.address < block.size.max(1)).then_some(block)
    }

    /// The live blocks before and behind an address, without the one that holds it.
    pub fn neighbours(&self, address: u64) -> (Option<&BornBlock>, Option<&BornBlock>) {
        let last = self.last_up_to(address);
        let held = usize::from(self.holding(address).is_some());
        let before = (last - held)
            .checked_sub(1)
            .and_then(|at| self.blocks.get(at));
        (before, self.blocks.get(last))
    }

    /// The class of the object that a block began with when it was inspected. Raw.
    pub fn class_of(&self, block: &BornBlock) -> Option<&str> {
        let inspected = self.inspected.as_ref()?;
        let found = inspected.blocks.binary_search_by_key(&block.id, |it| it.0);
        let (_, class) = inspected.blocks.get(found.ok()?)?;
        let name = inspected.classes.get(*class as usize)?;
        Some(name)
    }

    /// The number of live blocks that begin at an address or before it.
    fn last_up_to(&self, address: u64) -> usize {
        self.blocks.partition_point(|it| it.address <= address)
    }
}

/// The blocks while changes are read.
#[derive(Debug)]
pub struct BlockReading {
    wanted: WantedBlocks,
    at_ns: u64,
    has_all: bool,
    began_ns: Option<u64>,
    /// By the serial number of the image.
    images: BTreeMap<u64, Image>,
    /// Live blocks and freed ones.
    kept: usize,
    /// The stacks that blocks can have.
    stacks: usize,
    /// Changes whose last part is still missing.
    parts: Vec<BlockChanges>,
    /// Their blocks.
    pending: usize,
}

#[derive(Debug, Default)]
struct Image {
    owner: BlockOwner,
    ended_ns: Option<u64>,
    live: HashMap<u64, BornBlock>,
    freed: BTreeMap<u64, VecDeque<PastBlock>>,
    more_freed: BTreeMap<u64, u64>,
    memory: Option<MemoryReading>,
    /// The freed blocks.
    classes: BlockClasses,
    inspected: Option<Inspected>,
}

impl BlockReading {
    /// The memory of a block in the tables, at most.
    pub(in crate::profile) const BLOCK: u64 = 3 * size_of::<(u64, PastBlock)>() as u64;

    /// The memory of an image, at most, without its name.
    pub(in crate::profile) const IMAGE: u64 = 4 * size_of::<Image>() as u64;

    /// No blocks so far.
    pub fn new(wanted: WantedBlocks) -> Self {
        Self {
            wanted,
            at_ns: 0,
            has_all: false,
            began_ns: None,
            images: BTreeMap::new(),
            kept: 0,
            stacks: 0,
            parts: Vec::new(),
            pending: 0,
        }
    }

    /// The number of images and of blocks.
    pub(in crate::profile) fn size(&self) -> (usize, usize) {
        let images = self.images.len() + self.parts.len();
        let blocks = self.kept + self.pending;
        // At the end, each block may be the only one of its sum, but mostly many have the same stack and meet the same conditions.
        let sums = match self.wanted.conditions.len() {
            0 => 0,
            conditions => {
                let of_stack = 1_usize.checked_shl(conditions as u32);
                let of_image = self.stacks.saturating_mul(of_stack.unwrap_or(usize::MAX));
                images.saturating_mul(of_image).min(blocks)
            }
        };
        (images, blocks + CLASS * sums)
    }

    /// Adds changes, and applies them when no further part follows. There are so many stacks; a block of another one is an error,
    /// which names it.
    pub fn add(
        &mut self,
        mut changes: BlockChanges,
        more: bool,
        stacks: usize,
    ) -> Result<(), StackId> {
        self.stacks = self.stacks.max(stacks);
        changes.memory = changes.memory.filter(|_| self.wanted.memory);
        self.pending += changes.born.len() + changes.freed.len();
        self.pending += changes.memory.as_ref().map_or(0, size_of_map);
        self.pending += changes.inspected.as_ref().map_or(0, size_of_inspected);
        self.parts.push(changes);
        if more {
            return Ok(());
        }
        self.pending = 0;
        let mut whole: Option<BlockChanges> = None;
        for part in std::mem::take(&mut self.parts) {
            match &mut whole {
                // A block may be freed in an earlier part than the one with its allocation.
                Some(whole) if whole.owner == part.owner => {
                    whole.born.extend(part.born);
                    whole.freed.extend(part.freed);
                    whole.memory = part.memory.or(whole.memory.take());
                    whole.inspected = part.inspected.or(whole.inspected.take());
                }
                _ => {
                    let before = whole.replace(part);
                    before.map_or(Ok(()), |before| self.apply(before, stacks))?;
                }
            }
        }
        whole.map_or(Ok(()), |whole| self.apply(whole, stacks))
    }

    /// Everything is known up to this time, nanoseconds since the run began: an update of that time has no further changes.
    pub fn complete(&mut self, at_ns: u64) {
        self.at_ns = self.at_ns.max(at_ns);
    }

    fn apply(&mut self, changes: BlockChanges, stacks: usize) -> Result<(), StackId> {
        self.at_ns = self.at_ns.max(changes.at_ns);
        self.has_all |= changes.has_all;
        if changes.is_whole {
            self.began_ns = self.began_ns.or(Some(changes.at_ns));
            // No block was live then.
            if changes.owner == BlockOwner::default() && changes.born.is_empty() {
                return Ok(());
            }
        }
        let image = self.images.entry(changes.owner.serial).or_default();
        image.owner = changes.owner;
        image.ended_ns = changes.ended_ns.or(image.ended_ns);
        for block in changes.born {
            if block.stack.0 as usize >= stacks {
                return Err(block.stack);
            }
            let old = image.live.insert(block.id, block);
            self.kept += usize::from(old.is_none());
            if let Some(memory) = &mut image.memory {
                memory.born(block.id);
            }
        }
        for end in changes.freed {
            // The allocation of a block may have found no room.
            let Some(block) = image.live.remove(&end.id) else {
                continue;
            };
            self.kept -= 1;
            if let Some(memory) = &mut image.memory {
                self.kept += memory.freed(block);
            }
            if changes.has_all && !self.wanted.conditions.is_empty() {
                let end_ns = match end.how {
                    HowFreed::Unseen => changes.at_ns,
                    HowFreed::Freed | HowFreed::Reallocated => end.freed_ns,
                };
                let conditions = &self.wanted.conditions;
                let fate = BlockFate::Freed;
                let is_new = image.classes.add(conditions, &block, end_ns, fate);
                self.kept += CLASS * usize::from(is_new);
            }
            for address in self.wanted.within(&block) {
                let freed = image.freed.entry(*address).or_default();
                if freed.len() >= MOST_FREED {
                    freed.pop_front();
                    self.kept -= 1;
                    *image.more_freed.entry(*address).or_default() += 1;
                }
                freed.push_back(PastBlock { block, end });
                self.kept += 1;
            }
        }
        if let Some(map) = changes.memory {
            let memory = MemoryReading::new(map, stacks)?;
            self.kept += memory.size();
            let old = image.memory.replace(memory);
            self.kept -= old.map_or(0, |it| it.size());
        }
        if let Some(inspected) = changes.inspected {
            self.kept += size_of_inspected(&inspected);
            let old = image.inspected.replace(inspected);
            self.kept -= old.as_ref().map_or(0, size_of_inspected);
        }
        Ok(())
    }

    /// The blocks as they are now.
    pub fn finish(self) -> BlockList {
        let (at_ns, conditions) = (self.at_ns, self.wanted.conditions);
        let processes = self.images.into_values().map(|mut image| {
            let memory = image.memory.take().map(|it| it.finish(&image.live));
            if !conditions.is_empty() {
                let fate = image.ended_ns.map_or(BlockFate::Live, |_| BlockFate::Left);
                let end_ns = image.ended_ns.unwrap_or(at_ns);
                for block in std::mem::take(&mut image.live).into_values() {
                    image.classes.add(&conditions, &block, end_ns, fate);
                }
            }
            let mut blocks: Vec<_> = image.live.into_values().collect();
            blocks.sort_unstable_by_key(|it| (it.address, it.born_ns, it.id));
            let in_order = |(address, freed): (u64, VecDeque<PastBlock>)| {
                let mut freed = Vec::from(freed);
                // Events of several processors may have arrived in another order.
                freed.sort_by_key(|it| (it.block.born_ns, it.block.id));
                (address, freed)
            };
            ProcessBlocks {
                owner: image.owner,
                ended_ns: image.ended_ns,
                blocks,
                freed: image.freed.into_iter().map(in_order).collect(),
                more_freed: image.more_freed,
                memory,
                classes: image.classes.finish(),
                inspected: image.inspected,
            }
        });
        BlockList {
            at_ns,
            has_all: self.has_all,
            began_ns: self.began_ns,
            processes: processes.collect(),
            conditions,
        }
    }
}

/// The memory of what was found, as so many blocks of a reading.
fn size_of_inspected(it: &Inspected) -> usize {
    let names = it.classes.iter().map(|it| 1 + it.len() / 64);
    1 + names.sum::<usize>() + it.blocks.len() / 8 + it.stacks.len()
}

#[cfg(test)]
mod tests;
