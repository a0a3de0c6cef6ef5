//! The memory of a process, and its blocks at the time when it was read.
//!
//! Stage: profile. Knows nothing of files and outputs.

use crate::join::{BornBlock, MemoryMap, StackId};

/// The memory of a process with its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBlocks {
    /// What is resident.
    pub map: MemoryMap,
    /// The blocks that were live then, in the order of their addresses.
    pub blocks: Vec<BornBlock>,
}

impl MemoryBlocks {
    /// Joins memory with the blocks that are live now. There are so many stacks; memory of another one is an error, which names it.
    pub(super) fn new(
        map: MemoryMap,
        live: impl Iterator<Item = BornBlock>,
        stacks: usize,
    ) -> Result<Self, StackId> {
        let mut parts = map.mapped.iter();
        if let Some(part) = parts.find(|it| it.stack.0 as usize >= stacks) {
            return Err(part.stack);
        }
        let mut blocks: Vec<_> = live.collect();
        blocks.sort_unstable_by_key(|it| (it.address, it.born_ns, it.id));
        Ok(Self { map, blocks })
    }

    /// Its memory, as so many blocks of a reading.
    pub(super) fn size(&self) -> usize {
        self.blocks.len() + size_of_map(&self.map)
    }
}

/// The memory of a map, as so many blocks of a reading.
pub(super) fn size_of_map(map: &MemoryMap) -> usize {
    let mappings = map.residency.mappings.iter();
    let of_mappings = mappings.map(|it| 2 + it.name.len() / 64 + it.runs.len() / 8);
    1 + map.mapped.len() + of_mappings.sum::<usize>()
}
