//! The memory of a process, and its blocks at the time when it was read.
//!
//! Stage: profile. While changes are read, only what came after the last reading of the memory is kept apart: a long recording has
//! many readings, each of which would need a copy of all live blocks. Knows nothing of files and outputs.

use std::collections::{HashMap, HashSet};

use crate::join::{BornBlock, MemoryMap, StackId};

/// The memory of a process with its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBlocks {
    /// What is resident.
    pub map: MemoryMap,
    /// The blocks that were live then, in the order of their addresses.
    pub blocks: Vec<BornBlock>,
}

/// The last reading of a process's memory, and how its blocks changed since.
#[derive(Debug, Default)]
pub(super) struct MemoryReading {
    map: MemoryMap,
    /// The ids of blocks that were allocated later, and are live.
    born_since: HashSet<u64>,
    /// The blocks that were live then, and are freed now.
    freed_since: Vec<BornBlock>,
}

impl MemoryReading {
    /// A reading of this moment. There are so many stacks; memory of another one is an error, which names it.
    pub(super) fn new(map: MemoryMap, stacks: usize) -> Result<Self, StackId> {
        let mut parts = map.mapped.iter();
        if let Some(part) = parts.find(|it| it.stack.0 as usize >= stacks) {
            return Err(part.stack);
        }
        Ok(Self {
            map,
            ..Self::default()
        })
    }

    /// Adds an allocated block.
    pub(super) fn born(&mut self, id: u64) {
        self.born_since.insert(id);
    }

    /// Adds a freed block. Returns how many more blocks are kept.
    pub(super) fn freed(&mut self, block: BornBlock) -> usize {
        if self.born_since.remove(&block.id) {
            return 0;
        }
        self.freed_since.push(block);
        1
    }

    /// Its memory, as so many blocks of a reading, without blocks that are live.
    pub(super) fn size(&self) -> usize {
        self.freed_since.len() + size_of_map(&self.map)
    }

    /// The memory with its blocks, by the blocks that are live now.
    pub(super) fn finish(self, live: &HashMap<u64, BornBlock>) -> MemoryBlocks {
        let live = live.values().copied();
        let mut blocks: Vec<_> = live
            .filter(|it| !self.born_since.contains(&it.id))
            .chain(self.freed_since)
            .collect();
        blocks.sort_unstable_by_key(|it| (it.address, it.born_ns, it.id));
        MemoryBlocks {
            map: self.map,
            blocks,
        }
    }
}

/// The memory of a map, as so many blocks of a reading.
pub(super) fn size_of_map(map: &MemoryMap) -> usize {
    let mappings = map.residency.mappings.iter();
    let of_mappings = mappings.map(|it| 2 + it.name.len() / 64 + it.runs.len() / 8);
    1 + map.mapped.len() + of_mappings.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{BlockChanges, FreedBlock, HowFreed};
    use crate::profile::{BlockReading, WantedBlocks};
    use crate::random::numbers;

    fn block(id: u64) -> BornBlock {
        BornBlock {
            id,
            // Some addresses are used again.
            address: id % 50 * 64,
            size: 48,
            stack: StackId(0),
            thread: 7,
            born_ns: id,
            mean: 0,
            is_reallocated: false,
        }
    }

    /// Check that the blocks of a reading are those that a copy at that moment would have, after any changes before and after it.
    #[test]
    fn blocks_are_those_of_the_last_reading() {
        let mut random = numbers(19);
        for _ in 0..100 {
            let mut reading = BlockReading::new(WantedBlocks::default().with_memory());
            let (mut live, mut copy) = (Vec::new(), None);
            let mut next = 1;
            for at_ns in 0..random(12) {
                let born: Vec<_> = (0..random(8)).map(|n| block(next + n)).collect();
                next += born.len() as u64;
                live.extend(born.clone());
                let gone = (0..random(8)).filter_map(|_| {
                    let at = random(live.len().max(1) as u64) as usize;
                    (at < live.len()).then(|| live.swap_remove(at))
                });
                let freed: Vec<_> = gone
                    .map(|it: BornBlock| FreedBlock {
                        id: it.id,
                        how: HowFreed::Freed,
                        freed_ns: at_ns,
                        thread: 7,
                    })
                    .collect();
                let memory = (random(3) == 0).then(|| MemoryMap {
                    at_ns,
                    ..MemoryMap::default()
                });
                if memory.is_some() {
                    let mut blocks = live.clone();
                    blocks.sort_unstable_by_key(|it| (it.address, it.born_ns, it.id));
                    copy = Some((at_ns, blocks));
                }
                let changes = BlockChanges {
                    at_ns,
                    born,
                    freed,
                    memory,
                    ..BlockChanges::default()
                };
                reading.add(changes, false, 1).unwrap();
            }
            let list = reading.finish();
            let process = list.processes.first();
            let memory = process.and_then(|it| it.memory.as_ref());
            let found = memory.map(|it| (it.map.at_ns, it.blocks.clone()));
            assert_eq!(found, copy);
        }
    }
}
