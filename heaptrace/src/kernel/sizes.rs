//! How many entries each kernel map may hold, from one memory budget.
//!
//! Part of `kernel`. The cost of an entry includes the memory that the agent uses for it, so that the budget
//! covers both. Maps allocate their entries as they fill. The ring, and the buckets of each map (16 bytes for each
//! possible entry), are allocated at the start. So a run with a limit of samples gets a smaller ring and a smaller live
//! map than the budget allows: it can't fill larger ones.

use heaptrace_common::limits::MAX_BLOCKS;
use heaptrace_common::wire::ThreadState;

use crate::config::{RunConfig, Target};

/// Bytes of the agent's memory that a live block uses at most: 32, in a table that is at least three fifths full.
pub(crate) const AGENT_PER_BLOCK: u64 = 54;
/// Bytes that a live block uses in total: with an entry of the kernel's map (96, and 16 of its table).
const PER_BLOCK: u64 = 112 + AGENT_PER_BLOCK;
/// Bytes of a thread's state, which holds a stack, as the kernel rounds it up.
const PER_THREAD: u64 = 4096;
/// Bytes that the kernel adds before a thread's state: its own, and the key.
const BEFORE_THREAD: u64 = 64;
/// Bytes of a process: two entries of kernel maps, and the agent's record.
const PER_PROCESS: u64 = 512;
/// Bytes of a stack: the entry of the kernel map, and the agent's frames.
const PER_STACK: u64 = 512;
/// Bytes of the ring that a CPU can fill while the agent is delayed.
const RING_PER_CPU: u64 = 16 << 20;
/// Bytes of the ring for each sample a second: those of a second, most of which name a stack that was sent before.
const RING_PER_SAMPLE: u64 = 400;
/// The smallest ring of a run with a limit of samples: the first samples come before the rate is adjusted.
const LEAST_RING: u64 = 4 << 20;
/// Live blocks for each sample a second. When half of them are live, the rate begins to fall (`session/rate.rs`).
const LIVE_PER_SAMPLE: u64 = 50;
/// The least number of live blocks of a run with a limit of samples.
const LEAST_LIVE: u64 = 1 << 16;
/// Processes that a CPU runs between two times at which the agent takes the counts of probe hits, and that have a count.
const COUNTED_PER_CPU: u64 = 128;

const _: () = assert!(size_of::<ThreadState>() as u64 + BEFORE_THREAD <= PER_THREAD);

/// Maximum numbers of entries of the kernel maps, and bytes of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the ring: a power of two.
    pub ring: u32,
    /// Live blocks.
    pub live: u32,
    /// Threads.
    pub threads: u32,
    /// Processes: running ones, and ended ones whose end is not sent yet.
    pub processes: u32,
    /// Processes whose probe hits were counted since the agent took the counts, which it does up to fifty times a second. Taking them
    /// takes as long as if there were as many.
    pub hits: u32,
    /// Stacks that are remembered as sent.
    pub stacks: u32,
}

impl Sizes {
    /// The sizes of a run on a machine with this many CPUs. Sizes that the user set are kept.
    pub fn new(config: &RunConfig, cpus: u64) -> Self {
        let share = |parts: u64, each: u64, least: u32| {
            let entries = config.max_memory / 32 * parts / each;
            u32::try_from(entries)
                .unwrap_or(u32::MAX)
                .max(least)
                .min(MAX_BLOCKS)
        };
        let (needed_ring, needed_live) = needs(config, cpus);
        // The rest of the 32 parts is for unwind tables, and for the agent's sites and files.
        let processes = share(1, PER_PROCESS, 1024);
        let counted = (COUNTED_PER_CPU * cpus).max(1024);
        Self {
            ring: config
                .ring_size
                .unwrap_or_else(|| ring(config.max_memory / 16, needed_ring)),
            live: config
                .max_live
                .unwrap_or_else(|| share(16, PER_BLOCK, 1024).min(needed_live)),
            threads: share(4, PER_THREAD, 1024),
            processes,
            hits: processes.min(u32::try_from(counted).unwrap_or(u32::MAX)),
            stacks: share(4, PER_STACK, 1024),
        }
    }
}

/// The bytes of the ring and the live blocks that a run can use, whatever the budget is.
fn needs(config: &RunConfig, cpus: u64) -> (u64, u32) {
    let Some(samples) = config.sampling.max_per_second.map(u64::from) else {
        return (RING_PER_CPU * cpus, u32::MAX);
    };
    // Processes that start together have their first samples together.
    let at_once = if config.target == Target::All { 2 } else { 1 };
    let ring = (samples * RING_PER_SAMPLE).max(LEAST_RING) * at_once;
    let live = (samples * LIVE_PER_SAMPLE).max(LEAST_LIVE);
    let live = live.next_power_of_two().min(MAX_BLOCKS.into());
    (ring.min(RING_PER_CPU * cpus), live as u32)
}

/// The smallest power of two with the wanted bytes, or the largest that the budget allows.
fn ring(budget: u64, wanted: u64) -> u32 {
    let smallest = u64::from(RunConfig::MIN_RING_SIZE);
    let largest = u64::from(RunConfig::MAX_RING_SIZE);
    let wanted = wanted.next_power_of_two();
    let allowed = (budget + 1).next_power_of_two() / 2;
    wanted.min(allowed).clamp(smallest, largest) as u32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{KeptBlocks, Probes, Sampling, Selection, TableConfig};

    fn config(max_memory: u64) -> RunConfig {
        RunConfig {
            run_as: None,
            target: Target::All,
            selection: Selection::default(),
            from_birth: false,
            debug_dirs: Vec::new(),
            children: true,
            threads: false,
            histogram: false,
            mappings: false,
            blocks: KeptBlocks::None,
            inspect_live: false,
            reachable: false,
            max_stop: None,
            duration: None,
            mark_every: None,
            live_limit: None,
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
            fast: false,
            probes: Probes::Full,
            verbose: false,
        }
    }

    /// Check that all maps together stay within any budget, and that a larger budget never makes a map smaller.
    #[test]
    fn sizes_stay_within_the_budget() {
        let mut before: Option<Sizes> = None;
        for shift in 0..12 {
            let budget = RunConfig::MIN_MEMORY << shift;
            let sizes = Sizes::new(&config(budget), 1 << shift);
            let used = u64::from(sizes.ring)
                + u64::from(sizes.live) * PER_BLOCK
                + u64::from(sizes.threads) * PER_THREAD
                + u64::from(sizes.processes) * PER_PROCESS
                + u64::from(sizes.stacks) * PER_STACK;
            assert!(used <= budget, "{used} of {budget}: {sizes:?}");
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

    /// Check that the ring grows with the number of CPUs, within the budget.
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

    fn limited(target: Target, samples: u32, max_memory: u64) -> RunConfig {
        RunConfig {
            target,
            sampling: Sampling {
                mean: RunConfig::FINEST_MEAN,
                first_shift: RunConfig::FIRST_SHIFT,
                max_per_second: Some(samples),
                ..Sampling::EXACT
            },
            ..config(max_memory)
        }
    }

    /// Check that a run with a limit of samples gets a small ring and live map whatever the number of CPUs, larger ones
    /// with a higher limit, and never more than the budget allows.
    #[test]
    fn a_limit_of_samples_limits_the_sizes() {
        let sizes = |config: &RunConfig, cpus| {
            let sizes = Sizes::new(config, cpus);
            (sizes.ring, sizes.live)
        };
        let process = Target::Pids(vec![1]);
        let most = RunConfig::DEFAULT_MAX_SAMPLES;
        for cpus in [1, 2, 64] {
            let one = limited(process.clone(), most, 1 << 30);
            assert_eq!(sizes(&one, cpus), (4 << 20, 1 << 19));
            let all = limited(Target::All, most, 1 << 30);
            assert_eq!(sizes(&all, cpus), (8 << 20, 1 << 19));
        }
        let few = limited(process.clone(), 1, 1 << 30);
        assert_eq!(sizes(&few, 4), (4 << 20, 1 << 16));
        let many = limited(process.clone(), u32::MAX, 1 << 30);
        assert_eq!(sizes(&many, 4), sizes(&config(1 << 30), 4));
        let little = limited(process, most, RunConfig::MIN_MEMORY);
        assert_eq!(sizes(&little, 4), sizes(&config(RunConfig::MIN_MEMORY), 4));
    }

    /// Check that sizes that the user set are kept, with and without a limit of samples.
    #[test]
    fn explicit_sizes_are_kept() {
        for config in [config(1 << 30), limited(Target::All, 10_000, 1 << 30)] {
            let explicit = RunConfig {
                max_live: Some(7_000_000),
                ring_size: Some(4096),
                ..config
            };
            let sizes = Sizes::new(&explicit, 4);
            assert_eq!((sizes.live, sizes.ring), (7_000_000, 4096));
        }
    }
}
