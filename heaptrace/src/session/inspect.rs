//! Inspects live blocks, in runs that want that: at the end, and from time to time, because the process may be gone then.
//!
//! Part of the session. Processes are not stopped for it, and nothing is written to them. Must not know how classes are found.

use std::time::Instant;

use anyhow::Result;

use super::drain::Drain;
use super::seldom::Seldom;
use crate::config::RunConfig;
use crate::join::{Inspected, Joiner, LiveBlock, RunningImage};
use crate::reader::Budget;
use crate::types::Inspector;

/// Most processes whose blocks are inspected.
const MAX_PROCESSES: usize = 64;

/// Most blocks that are inspected at a time.
const MAX_BLOCKS: usize = 1 << 20;

/// The inspections of a run.
#[derive(Debug)]
pub(super) struct Inspections {
    /// None if blocks are not to be inspected.
    inspector: Option<Inspector>,
    times: Seldom,
    /// What was found.
    found: Vec<(RunningImage, Inspected)>,
}

/// The blocks of a process that are to be inspected.
struct Wanted {
    image: RunningImage,
    blocks: Vec<LiveBlock>,
    /// How many more there are.
    more: u64,
}

impl Inspections {
    pub(super) fn new(config: &RunConfig) -> Self {
        let wants = config.inspect_live;
        Self {
            inspector: wants.then(|| Inspector::new(&Budget::default())),
            times: Seldom::default(),
            found: Vec::new(),
        }
    }

    /// Inspects if the last time was long ago, and joins events meanwhile.
    pub(super) fn inspect_if_due(
        &mut self,
        drain: &mut Drain,
        joiner: &mut Joiner,
        begin: Instant,
    ) -> Result<()> {
        let Some(inspector) = &mut self.inspector else {
            return Ok(());
        };
        if !self.times.is_due() {
            return Ok(());
        }
        let wanted = wanted(joiner);
        // Before there are blocks, nothing is worth waiting for the next time.
        if wanted.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        self.found = drain.during(joiner, || inspect(inspector, wanted, begin))?;
        self.times.done(begun);
        Ok(())
    }

    /// Inspects now.
    pub(super) fn inspect(&mut self, joiner: &Joiner, begin: Instant) {
        if let Some(inspector) = &mut self.inspector {
            self.found = inspect(inspector, wanted(joiner), begin);
        }
    }

    /// Hands over what was found.
    pub(super) fn hand_over(&mut self, joiner: &mut Joiner) {
        for (image, found) in std::mem::take(&mut self.found) {
            joiner.set_inspected(image, found);
        }
    }
}

fn wanted(joiner: &Joiner) -> Vec<Wanted> {
    let mut room = MAX_BLOCKS;
    let images = joiner.with_blocks().into_iter().take(MAX_PROCESSES);
    let wanted = images.map(|image| {
        let (blocks, more) = joiner.live_blocks_of(image, room);
        room -= blocks.len();
        Wanted {
            image,
            blocks,
            more,
        }
    });
    wanted.collect()
}

fn inspect(
    inspector: &mut Inspector,
    wanted: Vec<Wanted>,
    begin: Instant,
) -> Vec<(RunningImage, Inspected)> {
    let found = wanted.into_iter().filter_map(|it| {
        let at_ns = begin.elapsed().as_nanos() as u64;
        // It may have ended.
        let inspected = inspector.inspect(it.image.pid, it.blocks)?;
        let inspected = Inspected {
            at_ns,
            unread: inspected.unread.saturating_add(it.more),
            ..inspected
        };
        Some((it.image, inspected))
    });
    found.collect()
}
