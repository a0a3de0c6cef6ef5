//! Follows pointers from the roots of a process to its blocks, and tells those that are not reached.
//!
//! Part of `reachability`. A pointer is an aligned word that holds an address in a block, also behind the block's beginning. Roots are
//! registers, stacks, variables, and what the program mapped itself. Memory between the blocks of glibc's heaps is no root, unless there
//! may be blocks in it that are not known.

use super::block_index::{BlockIndex, LiveBlock};
use super::pages::Pages;
use super::places::{Place, PlaceKind, Places};
use super::stop::{Registers, Stack};

/// Bytes behind a thread pointer that belong to the thread: glibc's record of it has some 2,300.
const OF_THREAD: u64 = 4096;

/// What is known of a process's blocks.
#[derive(Clone, Debug, Default)]
pub struct KnownBlocks {
    /// Its live blocks.
    pub live: Vec<LiveBlock>,
    /// Whether these are all that it has: none is from before tracing began, and none was left out of a sample.
    pub are_all: bool,
    /// What the program mapped itself: the first addresses, and those behind them.
    pub mapped: Vec<(u64, u64)>,
}

/// A block that nothing points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// The block's number.
    pub id: u64,
    /// Whether no other such block points to it.
    pub is_direct: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The blocks that nothing points to, in the order of their addresses.
    pub unreached: Vec<Unreached>,
    /// The blocks that were looked for, with their bytes.
    pub judged: (u64, u64),
    /// Blocks that are too young: a pointer to them may be in memory that was read earlier.
    pub too_young: u64,
    /// How often the memory was read after the stop, while the process ran.
    pub readings: u32,
}

/// A search under way.
pub(super) struct Search<'a> {
    places: &'a Places,
    known: &'a KnownBlocks,
    index: BlockIndex,
    /// Where each thread was when the process was stopped.
    stacks: &'a [Stack],
    is_reached: Vec<bool>,
    queue: Vec<usize>,
}

impl<'a> Search<'a> {
    /// A search that begins with the registers, and with blocks that are too young to be judged.
    pub(super) fn new(
        places: &'a Places,
        known: &'a KnownBlocks,
        registers: &'a Registers,
        judged_before: u64,
    ) -> Self {
        let index = BlockIndex::new(known.live.clone(), places);
        let blocks = index.blocks();
        let is_reached: Vec<bool> = blocks.iter().map(|it| it.born >= judged_before).collect();
        let mut search = Self {
            queue: reached(&is_reached),
            is_reached,
            places,
            known,
            index,
            stacks: &registers.stacks,
        };
        for word in &registers.words {
            search.reach(*word, false);
        }
        search
    }

    /// Follows the pointers in the memory of the stopped process.
    pub(super) fn follow(&mut self, pages: &Pages) {
        self.follow_roots(self.places, pages, None);
        self.follow_blocks(pages);
    }

    /// Follows the pointers in memory that was read later, too. What is not reached now was not before: no one can have made a pointer
    /// to it. What was written since counts as pointing wherever it is, because a block there may be new. Returns whether more was reached.
    pub(super) fn follow_later(&mut self, places: &Places, pages: &Pages, before: &Pages) -> bool {
        self.queue = reached(&self.is_reached);
        let known = self.queue.len();
        self.follow_roots(places, pages, Some(before));
        self.follow_blocks(pages);
        reached(&self.is_reached).len() > known
    }

    /// The addresses of the blocks that were not reached: the first, and the one behind them; `None` if there are none.
    pub(super) fn unreached(&self) -> Option<(u64, u64)> {
        let numbered = self.is_reached.iter().zip(self.index.blocks());
        let unreached = || numbered.clone().filter(|it| !*it.0).map(|it| it.1);
        let start = unreached().map(|it| it.address).min()?;
        let end = unreached().map(LiveBlock::end).max()?;
        Some((start, end))
    }

    fn follow_blocks(&mut self, pages: &Pages) {
        let mut found = Vec::new();
        while let Some(number) = self.queue.pop() {
            let Some(block) = self.index.blocks().get(number).copied() else {
                continue;
            };
            pages.words(block.address, block.end(), |_, word| found.push(word));
            for word in found.drain(..) {
                self.reach(word, false);
            }
        }
    }

    /// The blocks that were not reached.
    pub(super) fn finish(self, pages: &Pages, judged_before: u64) -> Found {
        let blocks = self.index.blocks();
        let mut is_pointed_to = vec![false; blocks.len()];
        let is_unreached = |number: usize| self.is_reached.get(number) == Some(&false);
        for (number, block) in blocks.iter().enumerate() {
            if !is_unreached(number) {
                continue;
            }
            pages.words(block.address, block.end(), |_, word| {
                let target = self.index.holding(word).filter(|it| *it != number);
                if let Some(slot) = target.and_then(|it| is_pointed_to.get_mut(it)) {
                    *slot = true;
                }
            });
        }
        let judged = blocks.iter().filter(|it| it.born < judged_before);
        let count = judged.clone().count() as u64;
        let numbered = blocks.iter().zip(is_pointed_to).enumerate();
        let unreached = numbered.filter(|(number, _)| is_unreached(*number));
        Found {
            unreached: unreached
                .map(|(_, (block, is_pointed_to))| Unreached {
                    id: block.id,
                    is_direct: !is_pointed_to,
                })
                .collect(),
            judged: (count, judged.map(|it| it.size).sum()),
            too_young: blocks.len() as u64 - count,
            readings: 0,
        }
    }

    /// Follows the pointers outside of blocks; if there is memory from before, the process has run on since.
    fn follow_roots(&mut self, places: &Places, pages: &Pages, before: Option<&Pages>) {
        for place in &places.all {
            // Later, a thread may use more of its stack.
            let own = self.stacks.iter();
            let own = own.filter(|it| before.is_none() && is_stack(place, it));
            let stack = own.map(|it| it.lowest).min();
            let threads = self.stacks.iter().map(|it| it.thread);
            let threads = threads.filter(|it| place.contains(*it)).max();
            let variables_end = threads.map_or(0, |it| it.saturating_add(OF_THREAD));
            let has_blocks = self.index.is_any_in(place.start, place.end);
            let is_glibc = place.kind == PlaceKind::Glibc;
            let mut roots = Vec::new();
            pages.words(place.start, place.end, |at, word| {
                let holder = self.index.holding(at).filter(|_| has_blocks);
                let is_used = match (holder, stack) {
                    // Blocks that are reached are followed afterwards.
                    (Some(_), _) => false,
                    (None, Some(lowest)) => at >= lowest,
                    (None, None) => !has_blocks || at < variables_end || self.is_root(place, at),
                };
                if is_used || before.is_some_and(|before| self.is_new(before, at, word)) {
                    roots.push(word);
                }
            });
            for word in roots {
                self.reach(word, is_glibc);
            }
        }
    }

    /// Whether a word points to a block that is not reached, and was not there before.
    fn is_new(&self, before: &Pages, at: u64, word: u64) -> bool {
        let target = self.index.holding(word);
        let is_reached = target.and_then(|it| self.is_reached.get(it));
        if is_reached != Some(&false) {
            return false;
        }
        let mut was_there = false;
        before.words(at, at.saturating_add(8), |_, old| was_there = old == word);
        !was_there
    }

    /// Whether memory beside blocks counts as a root: all but that of glibc's heaps, unless there are blocks that are not known. The main
    /// heap grows by `brk`; others begin at multiples of their greatest size. Elsewhere the kernel may have joined memory of the
    /// allocator with other memory. Programs that are linked statically have the variables of their first thread in the main heap.
    fn is_root(&self, place: &Place, at: u64) -> bool {
        const HEAP_MAX: u64 = 64 << 20;
        let heap = self.places.heap_start;
        let is_heap = (place.contains(heap) && at >= heap) || place.start.is_multiple_of(HEAP_MAX);
        let is_mapped = || {
            let mapped = &self.known.mapped;
            let part = mapped.partition_point(|it| it.1 <= at);
            mapped.get(part).is_some_and(|it| it.0 <= at)
        };
        !self.known.are_all || !is_heap || is_mapped()
    }

    /// Marks the block that a word points to.
    fn reach(&mut self, word: u64, is_glibc: bool) {
        let Some(number) = self.index.holding(word) else {
            return;
        };
        let block = self.index.blocks().get(number);
        if is_glibc && block.is_some_and(|it| it.has_next_header(word)) {
            return;
        }
        if let Some(is_reached) = self.is_reached.get_mut(number)
            && !std::mem::replace(is_reached, true)
        {
            self.queue.push(number);
        }
    }
}

/// Whether a thread runs on its own stack, and this is it: nothing else lies in the mapping below its stack pointer. A stack that the program made
/// may lie in a block, or in a mapping that the kernel has joined with others.
fn is_stack(place: &Place, stack: &Stack) -> bool {
    let has_thread = stack.lowest < stack.thread && place.contains(stack.thread);
    place.contains(stack.lowest) && (place.is_main_stack || place.is_guarded && has_thread)
}

fn reached(is_reached: &[bool]) -> Vec<usize> {
    let numbered = is_reached.iter().enumerate();
    let reached = numbered.filter(|(_, is_reached)| **is_reached);
    reached.map(|(number, _)| number).collect()
}
