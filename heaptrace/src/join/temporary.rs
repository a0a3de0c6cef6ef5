//! Which blocks are temporary: freed right after a like one was allocated.
//!
//! Stage: join. heaptrack calls a free temporary if the event before it allocated a block of the same size from the same stack: in most cases
//! the freed one, else one that takes its place. heaptrack looks at the events of all threads in their order; here, each thread has
//! its own. Knows nothing of sums.

use super::blocks::Block;
use super::update::SiteId;

/// Threads whose last call is remembered, by the end of their numbers. Threads that share a place hide each other's blocks.
const THREADS: usize = 4096;

/// The last call of each thread, where that was an allocation. Only of use if every call is recorded.
#[derive(Debug, Default)]
pub(super) struct LastCalls {
    /// Empty until all calls are followed.
    slots: Vec<Option<Call>>,
}

/// An allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    process: u64,
    tid: u32,
    site: SiteId,
    size: u64,
}

impl LastCalls {
    /// Follows the calls of all threads from now on.
    pub(super) fn follow(&mut self) {
        self.slots = vec![None; THREADS];
    }

    fn slot(&mut self, tid: u32) -> Option<&mut Option<Call>> {
        let index = tid as usize % THREADS;
        self.slots.get_mut(index)
    }

    /// Remembers an allocation, by the serial number of its process.
    pub(super) fn allocated(&mut self, process: u64, tid: u32, site: SiteId, size: u64) {
        if let Some(slot) = self.slot(tid) {
            *slot = Some(Call {
                process,
                tid,
                site,
                size,
            });
        }
    }

    /// Whether a thread frees a temporary block; `None` if its calls are not followed.
    pub(super) fn freed(&mut self, process: u64, tid: u32, block: &Block) -> Option<bool> {
        let last = self.slot(tid)?.take();
        let alike = Call {
            process,
            tid,
            site: block.site,
            size: block.size,
        };
        Some(last == Some(alike))
    }
}
