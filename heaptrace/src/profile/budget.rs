//! Limits the memory for the contents of a data file, by the bytes that were read of it.
//!
//! Stage: profile. A few bytes of a crafted file can stand for a gigabyte: zeros compress well, and an empty
//! record needs a hundred times its size. So each record is charged before it is kept. Knows nothing of
//! chunks and messages.

use std::collections::HashMap;

use thiserror::Error;

use super::history::History;
use super::model::{Profile, Snapshot};
use super::symbols::Symbols;
use super::types::{BlockType, LiveClass};
use crate::join::{
    Allocator, Function, Generation, GenerationId, Location, Mark, Module, ModuleId, Process,
    ProcessId, Quality, RateChange, Site, SiteId, Stack, StackId, Usage,
};

/// The memory that any file may use.
const BASE: u64 = 256 << 20;

/// The memory that it may use for each of its bytes. Similar deep stacks compress well: real files need up to
/// a hundred.
const PER_BYTE: u64 = 256;

/// The memory that decoding may need for each byte of a record: an empty allocator has two bytes.
const DECODED: u64 = 80;

/// The memory that the memory allocator needs for each block, beside the block.
const BLOCK: u64 = 16;

/// The memory that every update needs for its snapshot.
const SNAPSHOT: u64 = 2 * size_of::<Snapshot>() as u64;

/// The file needs more memory than it may use.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("its records need more than {} of memory; if you trust the file, allow more with --max-memory", crate::text::bytes(*.0))]
pub(in crate::profile) struct Exceeded(u64);

/// The memory that is used and allowed.
#[derive(Debug)]
pub(in crate::profile) struct Budget {
    /// The user's limit. Without it, the limit depends on the bytes that were read.
    limit: Option<u64>,
    /// Bytes of the file.
    read: u64,
    /// Bytes of its decompressed messages.
    unpacked: u64,
    /// Memory of the records in the profile.
    kept: u64,
    /// Memory of the update or the symbols that are not whole yet.
    pending: u64,
    /// The parts of `kept` for the names and lists of each process, for the usage of each site, for the quality, and for
    /// symbols: newer ones replace them.
    processes: Vec<u64>,
    usages: HashMap<SiteId, u64>,
    quality: u64,
    symbols: u64,
    /// As `processes`, for each generation and for the marks.
    generations: Vec<u64>,
    marks: u64,
    /// As `symbols`, for single blocks.
    blocks: u64,
}

impl Budget {
    pub(in crate::profile) fn new(limit: Option<u64>) -> Self {
        Self {
            limit,
            read: 0,
            unpacked: 0,
            kept: 0,
            pending: 0,
            processes: Vec::new(),
            usages: HashMap::new(),
            quality: 0,
            symbols: 0,
            generations: Vec::new(),
            marks: 0,
            blocks: 0,
        }
    }

    fn limit(&self) -> u64 {
        let by_size = BASE.saturating_add(PER_BYTE.saturating_mul(self.read));
        self.limit.unwrap_or(by_size)
    }

    /// Charges bytes that were read, and the bytes that decompressing them gives. All of these have to be
    /// parsed, which costs time even if it needs no memory.
    pub(in crate::profile) fn unpack(&mut self, read: u64, unpacked: u64) -> Result<(), Exceeded> {
        self.read = self.read.saturating_add(read);
        self.unpacked = self.unpacked.saturating_add(unpacked);
        if self.unpacked > self.limit() {
            return Err(Exceeded(self.limit()));
        }
        Ok(())
    }

    /// Checks that a record of so many bytes may be decoded.
    pub(in crate::profile) fn decode(&self, bytes: usize) -> Result<(), Exceeded> {
        self.check(DECODED.saturating_mul(bytes as u64))
    }

    /// Charges a record of an update, or of symbols, that is not whole yet.
    pub(in crate::profile) fn charge(&mut self, cost: u64) -> Result<(), Exceeded> {
        self.check(cost)?;
        self.pending += cost;
        Ok(())
    }

    fn check(&self, more: u64) -> Result<(), Exceeded> {
        let sum = self.kept.saturating_add(self.pending).saturating_add(more);
        if sum > self.limit() {
            return Err(Exceeded(self.limit()));
        }
        Ok(())
    }

    /// Drops the pending records.
    pub(in crate::profile) fn forget(&mut self) {
        self.pending = 0;
    }

    /// Charges an update that becomes part of the profile, and frees the records that it replaces.
    pub(in crate::profile) fn keep_update(&mut self, update: &crate::join::Update) {
        self.pending = 0;
        self.kept += update.modules.iter().map(Cost::cost).sum::<u64>()
            + update.started.iter().map(Cost::cost).sum::<u64>()
            + update.functions.iter().map(Cost::cost).sum::<u64>()
            + update.locations.iter().map(Cost::cost).sum::<u64>()
            + update.stacks.iter().map(Cost::cost).sum::<u64>()
            + update.threads.iter().map(Cost::cost).sum::<u64>()
            + update.rates.iter().map(Cost::cost).sum::<u64>()
            + update.exceeded.iter().map(Cost::cost).sum::<u64>()
            + update.reachability.iter().map(Cost::cost).sum::<u64>()
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
        for (id, usage) in &update.usages {
            let cost = usage.cost();
            let before = self.usages.insert(*id, cost);
            self.kept = self.kept - before.unwrap_or_default() + cost;
        }
        for (id, generation) in &update.generations {
            let id = id.0 as usize;
            if id == self.generations.len() {
                self.generations.push(0);
            }
            if let Some(slot) = self.generations.get_mut(id) {
                let cost = generation.cost();
                self.kept = self.kept - std::mem::replace(slot, cost) + cost;
            }
        }
        if !update.marks.is_empty() {
            let marks = update.marks.iter().map(Cost::cost).sum();
            self.kept = self.kept - std::mem::replace(&mut self.marks, marks) + marks;
        }
        let quality = update.quality.cost() + 8 * update.sizes.len() as u64;
        self.kept = self.kept - std::mem::replace(&mut self.quality, quality) + quality;
    }

    /// Drops the pending update, but charges its snapshot.
    pub(in crate::profile) fn skip_update(&mut self) {
        self.pending = 0;
        self.kept += SNAPSHOT;
    }

    /// Charges new sites.
    pub(in crate::profile) fn keep_sites(&mut self, count: usize) {
        self.kept += count as u64 * 2 * size_of::<Site>() as u64;
    }

    /// Charges what is kept to subtract it later.
    pub(in crate::profile) fn keep_range(&mut self, bytes: u64) {
        self.kept = self.kept.saturating_add(bytes);
    }

    /// Charges new entries of the history.
    pub(in crate::profile) fn keep_history(&mut self, entries: u64) {
        self.kept += entries * History::ENTRY;
    }

    /// Charges the pending symbols, which are whole now, and frees the earlier ones.
    pub(in crate::profile) fn keep_symbols(&mut self) {
        let cost = std::mem::take(&mut self.pending);
        self.kept = self.kept - std::mem::replace(&mut self.symbols, cost) + cost;
    }

    /// Charges single blocks, instead of those before, and names of their processes.
    pub(in crate::profile) fn keep_blocks(
        &mut self,
        blocks: u64,
        names: u64,
    ) -> Result<(), Exceeded> {
        let before = std::mem::replace(&mut self.blocks, blocks);
        self.kept = self.kept.saturating_sub(before).saturating_add(blocks);
        self.kept = self.kept.saturating_add(names);
        self.check(0)
    }

    /// Checks the memory that outputs need for a profile: each joins the frames of sites, and some copy texts
    /// to frames.
    pub(in crate::profile) fn check_outputs(
        &self,
        profile: &Profile,
        symbols: Option<&Symbols>,
    ) -> Result<(), Exceeded> {
        let mut texts = 0_u64;
        for location in &profile.locations {
            let module = location.module.map(|id| id.0 as usize);
            let module = module.and_then(|id| profile.modules.get(id));
            let length = |module: &Module| (module.path.len() + module.started_as.len()) as u64;
            texts = texts.saturating_add(module.map_or(0, length));
            let function = location.function.map(|id| id.0 as usize);
            let function = function.and_then(|id| profile.functions.get(id));
            let length = |it: &Function| (it.name.len() + it.file.len()) as u64;
            texts = texts.saturating_add(function.map_or(0, length));
        }
        for change in &profile.rates {
            let process = change.process.map(|id| id.0 as usize);
            let process = process.and_then(|id| profile.processes.get(id));
            texts = texts.saturating_add(process.map_or(0, |it| it.command.len() as u64));
        }
        let types = symbols.map_or(&[][..], |it| &it.types.types);
        for it in types {
            texts = texts.saturating_add((it.name.len() + it.element.len()) as u64);
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
            .zip((0..).map(StackId))
            .map(|(stack, id)| {
                let ids = stack.locations.iter().map(|id| id.0 as usize);
                let frames: u64 = ids.filter_map(|id| functions.get(id)).sum();
                // A type is shown as a frame.
                let of_type = symbols.and_then(|it| it.types.of(id));
                frames + u64::from(of_type.is_some())
            })
            .collect();
        let generations = profile.generations.iter().map(|it| &it.site);
        let sites = profile.sites.iter().chain(generations);
        let found = profile.reachability.iter().flat_map(|it| &it.sites);
        let frames = sites
            .map(|it| it.stack)
            .chain(found.map(|it| it.stack))
            .filter_map(|stack| depths.get(stack.0 as usize))
            .fold(0_u64, |sum, depth| sum.saturating_add(*depth));
        self.check(texts.saturating_add(frames.saturating_mul(16)))
    }
}

/// The memory of a record: while it is read, and again when it is kept.
pub(in crate::profile) trait Cost {
    /// The most bytes that it can use.
    fn cost(&self) -> u64;
}

/// The memory of texts, each with a block of its own.
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
        let names = self.path.len() + self.root.len() + self.started_as.len();
        of::<Self>(4 * BLOCK + (names + self.build_id.len()) as u64)
    }
}

impl Cost for (ModuleId, String) {
    fn cost(&self) -> u64 {
        of::<Self>(BLOCK + self.1.len() as u64)
    }
}

impl Cost for Function {
    fn cost(&self) -> u64 {
        of::<Self>(2 * BLOCK + (self.name.len() + self.file.len()) as u64)
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
        let own = texts([&self.command, &self.command_line, &self.cgroup])
            + texts(self.killed_at.iter().map(|it| &it.group));
        of::<(ProcessId, Self)>(own + allocators)
    }
}

impl Cost for Site {
    fn cost(&self) -> u64 {
        of::<(SiteId, Self)>(0)
    }
}

impl Cost for Usage {
    fn cost(&self) -> u64 {
        let buckets = size_of_val(&*self.sizes) + size_of_val(&*self.lifetimes);
        let classes = self.rounding.iter().map(|it| size_of_val(&*it.classes));
        let lists = buckets + size_of_val(&*self.rounding) + classes.sum::<usize>();
        // Each has an entry in the table of usages, too.
        of::<(SiteId, Self)>((4 + self.rounding.len() as u64) * BLOCK + lists as u64) + 64
    }
}

impl Cost for Mark {
    fn cost(&self) -> u64 {
        of::<Self>(0)
    }
}

impl Cost for LiveClass {
    fn cost(&self) -> u64 {
        texts([&self.name]) + of::<Self>(0)
    }
}

impl Cost for BlockType {
    fn cost(&self) -> u64 {
        2 * texts([&self.name, &self.element]) + of::<Self>(0)
    }
}

impl Cost for crate::join::Exceeded {
    fn cost(&self) -> u64 {
        of::<Self>(self.name.len() as u64)
    }
}

impl Cost for crate::join::Reachability {
    fn cost(&self) -> u64 {
        of::<Self>(2 * BLOCK + (self.refused.len() + size_of_val(&*self.sites)) as u64)
    }
}

impl Cost for Generation {
    fn cost(&self) -> u64 {
        of::<(GenerationId, Self)>(BLOCK + size_of_val(&*self.survived) as u64)
    }
}

impl Cost for Quality {
    fn cost(&self) -> u64 {
        let counted = texts(self.lost.keys()) + texts(self.noted.keys());
        let named = texts(&self.unprobed) + texts(&self.without_tables);
        2 * (2 * counted + named)
    }
}
