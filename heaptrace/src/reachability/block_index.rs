//! Finds the block that holds an address, among many.
//!
//! Part of `reachability`. Each page of memory with blocks has the number of the first block in it, so a search is short.

use super::places::Places;
use super::words::PAGE;

/// Most pages for each block of a mapping that get a number; blocks that lie further from each other are searched by halving.
const PAGES_OF_BLOCK: u64 = 64;

/// A live block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveBlock {
    /// A number that no other block of the process has.
    pub id: u64,
    /// Its address.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// When it was allocated, on the monotonic clock.
    pub born: u64,
}

/// The blocks of a process, by address.
#[derive(Debug)]
pub(super) struct BlockIndex {
    blocks: Vec<LiveBlock>,
    spans: Vec<Span>,
}

/// The blocks of a mapping.
#[derive(Debug)]
struct Span {
    /// The page of the first block.
    start: u64,
    /// The end of the last one.
    end: u64,
    /// The blocks: their first number, and the one behind them.
    from: usize,
    to: usize,
    /// For each page the number of the first block that begins in it or later; empty if there are too many pages.
    firsts: Vec<u32>,
}

impl BlockIndex {
    /// Blocks that lie in some mappings, if only with their end: a program can protect the first page of a stack in a block. Others are left out:
    /// they were unmapped.
    pub(super) fn new(mut blocks: Vec<LiveBlock>, places: &Places) -> Self {
        let is_there = |address| places.holding(address).is_some();
        blocks.retain(|it| is_there(it.address) || is_there(it.end() - 1));
        blocks.sort_unstable_by_key(|it| (it.address, it.id));
        // Only an event that was lost leaves two at one address. The newer one is there.
        blocks.reverse();
        blocks.dedup_by_key(|it| it.address);
        blocks.reverse();
        let mut spans = Vec::new();
        let mut from = 0;
        for place in &places.all {
            let to = blocks.partition_point(|it| it.address < place.end);
            if let Some(span) = Span::new(&blocks, from, to) {
                spans.push(span);
            }
            from = to;
        }
        Self { blocks, spans }
    }

    /// All of them, in the order of their addresses.
    pub(super) fn blocks(&self) -> &[LiveBlock] {
        &self.blocks
    }

    /// Whether any lies between two addresses.
    pub(super) fn is_any_in(&self, start: u64, end: u64) -> bool {
        let at = self.spans.partition_point(|it| it.end <= start);
        self.spans.get(at).is_some_and(|it| it.start < end)
    }

    /// The number of the block that holds an address.
    pub(super) fn holding(&self, address: u64) -> Option<usize> {
        let span = self
            .spans
            .get(self.spans.partition_point(|it| it.end <= address))?;
        let page = address.checked_sub(span.start)? / PAGE;
        let first = |page: u64| Some(*span.firsts.get(page as usize)? as usize);
        let from = first(page).unwrap_or(span.from);
        let to = first(page + 1).unwrap_or(span.to);
        let in_page = self.blocks.get(from..to)?;
        let after = from + in_page.partition_point(|it| it.address <= address);
        let number = after.checked_sub(1)?;
        let block = self.blocks.get(number)?;
        (address - block.address < block.size.max(1)).then_some(number)
    }
}

impl Span {
    fn new(blocks: &[LiveBlock], from: usize, to: usize) -> Option<Self> {
        let own = blocks.get(from..to)?;
        let start = own.first()?.address & !(PAGE - 1);
        let end = own.iter().map(LiveBlock::end).max()?;
        let pages = (end - start).div_ceil(PAGE);
        let mut firsts = Vec::new();
        if pages <= PAGES_OF_BLOCK.saturating_mul(own.len() as u64) {
            firsts.reserve_exact(pages as usize);
            let mut number = from;
            for page in 0..pages {
                let begin = start + page * PAGE;
                while blocks.get(number).is_some_and(|it| it.address < begin) && number < to {
                    number += 1;
                }
                firsts.push(number as u32);
            }
        }
        Some(Self {
            start,
            end,
            from,
            to,
            firsts,
        })
    }
}

impl LiveBlock {
    /// The address behind it.
    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.size.max(1))
    }

    /// Whether an address is that of the header behind this block, as glibc keeps it of free memory: the last eight bytes that the
    /// block can use belong to that header.
    pub(super) fn has_next_header(&self, address: u64) -> bool {
        const LEAST: u64 = 24;
        let usable = (self.size.saturating_add(8 + 15) & !15).saturating_sub(8);
        self.address
            .checked_add(usable.max(LEAST) - 8)
            .is_some_and(|header| header == address)
    }
}
