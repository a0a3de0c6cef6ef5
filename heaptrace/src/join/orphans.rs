//! Entries of the kernel's maps whose process is gone: the session removes them there.
//!
//! Stage: join. Knows only the keys.

use heaptrace_common::wire::{BlockKey, StackKey};

use super::blocks::Blocks;
use super::process::Leftovers;

/// Orphaned entries that were not handed out yet.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Blocks in the live map, by the serial number of their process.
    blocks: Vec<(u64, Blocks)>,
    stacks: Vec<StackKey>,
}

impl Orphans {
    /// Adds everything that an ended process left.
    pub(super) fn add(&mut self, mut leftovers: Leftovers) {
        self.blocks.push((leftovers.serial, leftovers.blocks));
        self.stacks.append(&mut leftovers.stacks);
    }

    /// Adds a stack.
    pub(super) fn add_stack(&mut self, key: StackKey) {
        self.stacks.push(key);
    }

    /// Keys of blocks, each once.
    pub(super) fn take_blocks(&mut self) -> impl Iterator<Item = BlockKey> + use<> {
        let blocks = std::mem::take(&mut self.blocks).into_iter();
        blocks.flat_map(|(process, blocks)| {
            let addresses = blocks.into_addresses();
            addresses.map(move |address| BlockKey { address, process })
        })
    }

    /// Keys of stacks.
    pub(super) fn take_stacks(&mut self) -> Vec<StackKey> {
        std::mem::take(&mut self.stacks)
    }
}
