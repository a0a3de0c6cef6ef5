//! How much each kernel map may hold, out of one budget of memory.
//!
//! Part of `kernel`. What an entry takes is reckoned with what the agent keeps beside it, so that the
//! budget holds for both. Maps take their memory as they fill; the ring takes its own at once.

use heaptrace_common::limits::MAX_BLOCKS;
use heaptrace_common::wire::ThreadState;

use crate::config::RunConfig;

/// Bytes that a live block takes of the agent's memory at most: 24, in a table that is two thirds full at worst.
pub(crate) const AGENT_PER_BLOCK: u64 = 40;
/// Bytes that it takes in all: with an entry of the kernel's map (96, and 16 of its table).
const PER_BLOCK: u64 = 112 + AGENT_PER_BLOCK;
/// Bytes of a thread's state, which holds a stack: the kernel rounds it up to this.
const PER_THREAD: u64 = 4096;
/// Bytes that the kernel puts before a thread's state: its own, and the key.
const BEFORE_THREAD: u64 = 64;
/// Bytes of a process: two entries of the kernel's, and the agent's record.
const PER_PROCESS: u64 = 512;
/// Bytes of a stack: the kernel's entry, and the agent's frames.
const PER_STACK: u64 = 512;
/// What a CPU can fill in the time that the agent may be kept waiting.
const RING_PER_CPU: u64 = 16 << 20;

const _: () = assert!(size_of::<ThreadState>() as u64 + BEFORE_THREAD <= PER_THREAD);

/// Entries of the kernel's maps, and bytes of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the ring: a power of two.
    pub ring: u32,
    /// Live blocks.
    pub live: u32,
    /// Threads.
    pub threads: u32,
    /// Processes, those that are running and those whose end waits to be told.
    pub processes: u32,
    /// Stacks that are known as sent.
    pub stacks: u32,
}

impl Sizes {
    /// The sizes of a run on a machine with so many CPUs. What was asked for by itself is as asked.
    pub fn new(config: &RunConfig, cpus: u64) -> Self {
        let share = |parts: u64, each: u64, least: u32| {
            let entries = config.max_memory / 32 * parts / each;
            u32::try_from(entries)
                .unwrap_or(u32::MAX)
                .max(least)
                .min(MAX_BLOCKS)
        };
        // Of 32 parts, the rest is for unwind tables and for what the agent keeps of sites and files.
        Self {
            ring: config
                .ring_size
                .unwrap_or_else(|| ring(config.max_memory / 16, cpus)),
            live: config
                .max_live
                .unwrap_or_else(|| share(16, PER_BLOCK, 1024)),
            threads: share(4, PER_THREAD, 1024),
            processes: share(1, PER_PROCESS, 1024),
            stacks: share(4, PER_STACK, 1024),
        }
    }
}

/// The largest power of two that the CPUs can make use of and the budget allows.
fn ring(budget: u64, cpus: u64) -> u32 {
    let smallest = u64::from(RunConfig::MIN_RING_SIZE);
    let largest = u64::from(RunConfig::MAX_RING_SIZE);
    let wanted = (RING_PER_CPU * cpus).next_power_of_two();
    let allowed = (budget + 1).next_power_of_two() / 2;
    wanted.min(allowed).clamp(smallest, largest) as u32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Probes, Sampling, Selection, TableConfig, Target};

    fn config(max_memory: u64) -> RunConfig {
        RunConfig {
            run_as: None,
            target: Target::All,
            selection: Selection::default(),
            children: true,
            threads: false,
            mappings: false,
            duration: None,
            interval: Duration::from_secs(1),
            max_stack_depth: 128,
            max_memory,
            max_live: None,
            ring_size: None,
            tables: TableConfig {
                max_bytes: RunConfig::DEFAULT_TABLE_MEMORY,
                cache: None,
            },
            allocators: Vec::new(),
            sampling: Sampling::EXACT,
            max_overhead: None,
            probes: Probes::Full,
            verbose: false,
        }
    }

    /// Check that what all maps can take together is within the budget, whatever that is, and that
    /// a larger one never makes a map smaller.
    #[test]
    fn stays_within_the_budget() {
        let mut before: Option<Sizes> = None;
        for shift in 0..12 {
            let budget = RunConfig::MIN_MEMORY << shift;
            let sizes = Sizes::new(&config(budget), 1 << shift);
            let taken = u64::from(sizes.ring)
                + u64::from(sizes.live) * PER_BLOCK
                + u64::from(sizes.threads) * PER_THREAD
                + u64::from(sizes.processes) * PER_PROCESS
                + u64::from(sizes.stacks) * PER_STACK;
            assert!(taken <= budget, "{taken} of {budget}: {sizes:?}");
            assert!(sizes.ring.is_power_of_two());
            if let Some(before) = before {
                assert!(
                    sizes.ring >= before.ring
                        && sizes.live >= before.live
                        && sizes.threads >= before.threads
                        && sizes.processes >= before.processes
                        && sizes.stacks >= before.stacks
                );
            }
            before = Some(sizes);
        }
    }

    /// Check that the ring follows the number of CPUs, as far as the budget goes.
    #[test]
    fn the_ring_follows_the_cpus() {
        let ring = |budget, cpus| Sizes::new(&config(budget), cpus).ring;
        assert_eq!(ring(1 << 30, 1), 16 << 20);
        assert_eq!(ring(1 << 30, 2), 32 << 20);
        assert_eq!(ring(1 << 30, 3), 64 << 20);
        assert_eq!(ring(1 << 30, 64), 64 << 20);
        assert_eq!(ring(16 << 30, 64), 1 << 30);
        assert_eq!(ring(128 << 20, 64), 8 << 20);
    }

    /// Check that sizes that were asked for by themselves are as asked.
    #[test]
    fn what_is_asked_for_counts() {
        let asked = RunConfig {
            max_live: Some(7),
            ring_size: Some(4096),
            ..config(1 << 30)
        };
        let sizes = Sizes::new(&asked, 4);
        assert_eq!((sizes.live, sizes.ring), (7, 4096));
    }
}
