//! How much memory a data file may take, by how much of it was read.
//!
//! Stage: profile. A few bytes of a crafted file can stand for a gigabyte: zeros compress well, and an empty
//! record takes a hundred times its size. So each record is charged before it is kept. Knows nothing of chunks and
//! messages.

use thiserror::Error;

use super::{Profile, Symbols};
use crate::join::{
    Allocator, Location, Module, Process, ProcessId, Quality, RateChange, Site, SiteId, Stack,
};

/// What any file may take.
const BASE: u64 = 256 << 20;

/// What it may take for each of its bytes. Deep stacks that are much alike compress well: real files take up to a hundred.
const PER_BYTE: u64 = 256;

/// What a record of these bytes can become while it is decoded: an empty allocator takes two of them.
const DECODED: u64 = 80;

/// What the memory allocator takes for a block, beside it.
const BLOCK: u64 = 16;

/// What every update leaves.
const SNAPSHOT: u64 = 2 * size_of::<super::Snapshot>() as u64;

/// The file needs more memory than it may take.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("its records take more than {} of memory; give more by --max-memory, if you trust it", crate::text::bytes(*.0))]
pub(in crate::profile) struct Exceeded(u64);

/// What is left of the memory.
#[derive(Debug)]
pub(in crate::profile) struct Budget {
    /// Given by the user; else it follows from what was read.
    most: Option<u64>,
    /// Bytes of the file.
    read: u64,
    /// Bytes of its messages.
    unpacked: u64,
    /// Memory of records that stay.
    kept: u64,
    /// Memory of the update or symbols that are being read.
    pending: u64,
    /// What of `kept` is for the names and lists of each process, for its quality, and for symbols: newer
    /// ones take their place.
    processes: Vec<u64>,
    quality: u64,
    symbols: u64,
}

impl Budget {
    pub(in crate::profile) fn new(most: Option<u64>) -> Self {
        Self {
            most,
            read: 0,
            unpacked: 0,
            kept: 0,
            pending: 0,
            processes: Vec::new(),
            quality: 0,
            symbols: 0,
        }
    }

    fn most(&self) -> u64 {
        let by_size = BASE.saturating_add(PER_BYTE.saturating_mul(self.read));
        self.most.unwrap_or(by_size)
    }

    /// Bytes of the file were read, from which so many are to be unpacked. All of them have to be gone through, which
    /// takes time where it takes no memory.
    pub(in crate::profile) fn unpack(&mut self, read: u64, unpacked: u64) -> Result<(), Exceeded> {
        self.read = self.read.saturating_add(read);
        self.unpacked = self.unpacked.saturating_add(unpacked);
        if self.unpacked > self.most() {
            return Err(Exceeded(self.most()));
        }
        Ok(())
    }

    /// A record of so many bytes is to be decoded.
    pub(in crate::profile) fn decode(&self, bytes: usize) -> Result<(), Exceeded> {
        self.check(DECODED.saturating_mul(bytes as u64))
    }

    /// A record is to be kept with others that are not whole yet.
    pub(in crate::profile) fn charge(&mut self, cost: u64) -> Result<(), Exceeded> {
        self.check(cost)?;
        self.pending += cost;
        Ok(())
    }

    fn check(&self, more: u64) -> Result<(), Exceeded> {
        let sum = self.kept.saturating_add(self.pending).saturating_add(more);
        if sum > self.most() {
            return Err(Exceeded(self.most()));
        }
        Ok(())
    }

    /// What is pending is not kept after all.
    pub(in crate::profile) fn forget(&mut self) {
        self.pending = 0;
    }

    /// An update is to become part of the profile; what it takes the place of is free again.
    pub(in crate::profile) fn keep_update(&mut self, update: &crate::join::Update) {
        self.pending = 0;
        self.kept += update.modules.iter().map(Cost::cost).sum::<u64>()
            + update.locations.iter().map(Cost::cost).sum::<u64>()
            + update.stacks.iter().map(Cost::cost).sum::<u64>()
            + update.threads.iter().map(Cost::cost).sum::<u64>()
            + update.rates.iter().map(Cost::cost).sum::<u64>()
            + SNAPSHOT;
        for (id, process) in &update.processes {
            let id = id.0 as usize;
            if id == self.processes.len() {
                self.processes.push(0);
            }
            if let Some(slot) = self.processes.get_mut(id) {
                let cost = process.cost();
                self.kept = self.kept - std::mem::replace(slot, cost) + cost;
            }
        }
        let quality = update.quality.cost() + 8 * update.sizes.len() as u64;
        self.kept = self.kept - std::mem::replace(&mut self.quality, quality) + quality;
    }

    /// An update is not to become part of the profile; only the snapshot is.
    pub(in crate::profile) fn skip_update(&mut self) {
        self.pending = 0;
        self.kept += SNAPSHOT;
    }

    /// So many sites are new.
    pub(in crate::profile) fn keep_sites(&mut self, count: usize) {
        self.kept += count as u64 * 2 * size_of::<Site>() as u64;
    }

    /// Symbols are whole, and take the place of earlier ones.
    pub(in crate::profile) fn keep_symbols(&mut self) {
        let cost = std::mem::take(&mut self.pending);
        self.kept = self.kept - std::mem::replace(&mut self.symbols, cost) + cost;
    }

    /// Checks what outputs make of a profile: each puts the frames of sites together, and some put texts to frames.
    pub(in crate::profile) fn check_outputs(
        &self,
        profile: &Profile,
        symbols: Option<&Symbols>,
    ) -> Result<(), Exceeded> {
        let mut texts = 0_u64;
        for location in &profile.locations {
            let module = location.module.map(|id| id.0 as usize);
            let module = module.and_then(|id| profile.modules.get(id));
            texts = texts.saturating_add(module.map_or(0, |module| module.path.len() as u64));
        }
        for change in &profile.rates {
            let process = change.process.map(|id| id.0 as usize);
            let process = process.and_then(|id| profile.processes.get(id));
            texts = texts.saturating_add(process.map_or(0, |it| it.command.len() as u64));
        }
        let mut functions = vec![1_u64; profile.locations.len()];
        if let Some(symbols) = symbols {
            for (frames, functions) in symbols.frames.iter().zip(&mut functions) {
                *functions = frames.len().max(1) as u64;
                let ids = frames.iter().flat_map(|it| [it.function, it.file]);
                let lengths = ids.flatten().map(|id| symbols.text(id).len() as u64);
                texts = lengths.fold(texts, u64::saturating_add);
            }
        }
        let depths: Vec<u64> = profile
            .stacks
            .iter()
            .map(|stack| {
                let ids = stack.locations.iter().map(|id| id.0 as usize);
                ids.filter_map(|id| functions.get(id)).sum()
            })
            .collect();
        let frames = profile
            .sites
            .iter()
            .filter_map(|site| depths.get(site.stack.0 as usize))
            .fold(0_u64, |sum, depth| sum.saturating_add(*depth));
        self.check(texts.saturating_add(frames.saturating_mul(16)))
    }
}

/// How much memory something takes: where it is read, and again where it is kept.
pub(in crate::profile) trait Cost {
    /// Bytes, at most.
    fn cost(&self) -> u64;
}

/// A list of texts takes a block for each.
fn texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> u64 {
    texts
        .into_iter()
        .map(|text| size_of::<String>() as u64 + BLOCK + text.len() as u64)
        .sum()
}

fn of<T>(blocks: u64) -> u64 {
    2 * (size_of::<T>() as u64 + blocks)
}

impl Cost for String {
    fn cost(&self) -> u64 {
        2 * texts([self])
    }
}

impl Cost for Module {
    fn cost(&self) -> u64 {
        let bytes = self.path.len() + self.build_id.len() + self.root.len();
        of::<Self>(3 * BLOCK + bytes as u64)
    }
}

impl Cost for Location {
    fn cost(&self) -> u64 {
        of::<Self>(0)
    }
}

impl Cost for Stack {
    fn cost(&self) -> u64 {
        of::<Self>(BLOCK + 4 * self.locations.len() as u64)
    }
}

impl Cost for RateChange {
    fn cost(&self) -> u64 {
        of::<Self>(0)
    }
}

impl Cost for Process {
    fn cost(&self) -> u64 {
        let allocators: u64 = self
            .allocators
            .iter()
            .map(|it| {
                let own = size_of::<Allocator>() as u64 + BLOCK;
                own + texts([&it.path, &it.kind]) + texts(&it.hooks)
            })
            .sum();
        let own = texts([&self.command, &self.command_line, &self.cgroup]);
        of::<(ProcessId, Self)>(own + allocators)
    }
}

impl Cost for Site {
    fn cost(&self) -> u64 {
        of::<(SiteId, Self)>(0)
    }
}

impl Cost for Quality {
    fn cost(&self) -> u64 {
        let counted = texts(self.lost.keys()) + texts(self.noted.keys());
        let named = texts(&self.unprobed) + texts(&self.without_tables);
        2 * (2 * counted + named)
    }
}
