//! Finds the blocks at addresses.
//!
//! Stage: output. Must not know any format.

use crate::join::BornBlock;
use crate::profile::{BlockList, PastBlock, ProcessBlocks};

/// An address that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedAddress {
    /// The address.
    pub address: u64,
    /// What it is there, e.g. the name of a register; empty if only the number is known.
    pub name: String,
    /// What the process has mapped there.
    pub place: Place,
    /// The bytes that were there, from the address on, as far as they are known.
    pub memory: Vec<u8>,
}

/// What a process has mapped at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// That is not known.
    Unknown,
    /// Nothing.
    Unmapped,
    /// A file, by its path, or a kind of memory; raw.
    Mapped(String),
}

/// The core file that addresses are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreFacts {
    /// The process.
    pub pid: u32,
    /// Its name; raw.
    pub command: String,
    /// The thread whose registers were looked at.
    pub thread: u32,
    /// The signal that it got; 0 if none.
    pub signal: u32,
    /// The address that the signal is about.
    pub fault: Option<u64>,
    /// Registers that were not asked for by name, and hold the address of no recorded block.
    pub others: Vec<String>,
}

/// The block at an address in one program image, and the blocks around it.
#[derive(Clone, Debug)]
pub struct Owner<'a> {
    /// The image.
    pub process: &'a ProcessBlocks,
    /// The block that holds the address and was not freed.
    pub holder: Option<&'a BornBlock>,
    /// The freed blocks that held it, the last one first.
    pub freed: Vec<&'a PastBlock>,
    /// How many more there were before them.
    pub more_freed: u64,
    /// The blocks before and behind it that were not freed.
    pub neighbours: [Option<&'a BornBlock>; 2],
    /// Whether it is the last of the images in question: what is mapped at an address is of that one.
    pub is_last: bool,
}

impl Owner<'_> {
    /// Whether a recorded block held the address at any time.
    pub fn is_known(&self) -> bool {
        self.holder.is_some() || !self.freed.is_empty()
    }
}

/// The owners of an address.
#[derive(Clone, Debug)]
pub struct Owned<'a> {
    /// The address.
    pub asked: &'a AskedAddress,
    /// Each image in which a recorded block held it. If only one image is in question, that one in any case.
    pub owners: Vec<Owner<'a>>,
    /// The number of other images.
    pub others: usize,
    /// The process whose images are in question, if one is.
    pub pid: Option<u32>,
}

impl Owned<'_> {
    /// Whether a recorded block held the address at any time.
    pub fn is_known(&self) -> bool {
        self.owners.iter().any(Owner::is_known)
    }
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub struct Who<'a> {
    /// The blocks of the recording.
    pub blocks: &'a BlockList,
    /// The core file, if there is one.
    pub core: Option<CoreFacts>,
    /// The owners of each address.
    pub owned: Vec<Owned<'a>>,
}

/// Finds the owners of addresses, in the images of a process if one is chosen.
pub fn find<'a>(
    blocks: &'a BlockList,
    asked: &'a [AskedAddress],
    pid: Option<u32>,
) -> Vec<Owned<'a>> {
    let is_chosen = |it: &&ProcessBlocks| pid.is_none_or(|pid| it.owner.pid == pid);
    let images: Vec<_> = blocks.processes.iter().filter(is_chosen).collect();
    let owned = asked.iter().map(|asked| {
        let mut owners: Vec<_> = images.iter().map(|it| owner(it, asked.address)).collect();
        if let Some(last) = owners.last_mut() {
            last.is_last = true;
        }
        if owners.len() > 1 {
            owners.retain(Owner::is_known);
        }
        let others = images.len() - owners.len();
        // The present one first: an exec begins another image of the same process.
        owners.reverse();
        Owned {
            asked,
            owners,
            others,
            pid,
        }
    });
    owned.collect()
}

fn owner(process: &ProcessBlocks, address: u64) -> Owner<'_> {
    let freed = process.freed.get(&address).into_iter().flatten().rev();
    let (before, behind) = process.neighbours(address);
    Owner {
        process,
        holder: process.holding(address),
        freed: freed.collect(),
        more_freed: process.more_freed.get(&address).copied().unwrap_or(0),
        neighbours: [before, behind],
        is_last: false,
    }
}
