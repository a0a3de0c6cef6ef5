//! Reads what of processes' memory is resident, in runs that keep each block: at the end, and from time to time.
//!
//! Part of the session. Processes are not stopped for it. Reading takes the kernel a while in a large process, and it keeps the process
//! from changing its mappings meanwhile: so it is done seldom.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::drain::Drain;
use crate::config::{KeptBlocks, RunConfig};
use crate::join::{Joiner, MemoryMap};
use crate::proc::residency;

/// Most processes whose memory is read.
const MAX_PROCESSES: usize = 64;

/// The shortest time between two readings.
const SELDOM: Duration = Duration::from_secs(10);

/// Between two readings is so many times what the last one took.
const SHARE: u32 = 100;

/// The readings of a run.
#[derive(Debug)]
pub(super) struct MemoryReading {
    is_wanted: bool,
    /// When the last reading ended, and how long it took.
    last: Option<(Instant, Duration)>,
    /// What was read, by process id.
    read: Vec<(u32, MemoryMap)>,
}

impl MemoryReading {
    pub(super) fn new(config: &RunConfig) -> Self {
        Self {
            is_wanted: matches!(config.blocks, KeptBlocks::Lasting | KeptBlocks::All),
            last: None,
            read: Vec::new(),
        }
    }

    /// Reads if the last time was long ago, and joins events meanwhile.
    pub(super) fn read_if_due(
        &mut self,
        drain: &mut Drain,
        joiner: &mut Joiner,
        begin: Instant,
    ) -> Result<()> {
        let is_due = |(end, took): (Instant, Duration)| end.elapsed() >= SELDOM.max(took * SHARE);
        if !self.is_wanted || !self.last.is_none_or(is_due) {
            return Ok(());
        }
        let pids = joiner.with_blocks(MAX_PROCESSES);
        let begun = Instant::now();
        self.read = drain.during(joiner, || read(pids, begin))?;
        self.last = Some((Instant::now(), begun.elapsed()));
        Ok(())
    }

    /// Reads now.
    pub(super) fn read(&mut self, joiner: &Joiner, begin: Instant) {
        if self.is_wanted {
            self.read = read(joiner.with_blocks(MAX_PROCESSES), begin);
        }
    }

    /// Hands over what was read. The events of that time must be joined.
    pub(super) fn hand_over(&mut self, joiner: &mut Joiner) {
        for (pid, map) in std::mem::take(&mut self.read) {
            joiner.set_memory(pid, map);
        }
    }
}

fn read(pids: Vec<u32>, begin: Instant) -> Vec<(u32, MemoryMap)> {
    let maps = pids.into_iter().filter_map(|pid| {
        let begun = Instant::now();
        // It may have ended.
        let residency = residency::read(pid).ok()?;
        let map = MemoryMap {
            at_ns: (begun - begin).as_nanos() as u64,
            took_ns: begun.elapsed().as_nanos() as u64,
            residency,
            mapped: Vec::new(),
        };
        Some((pid, map))
    });
    maps.collect()
}
