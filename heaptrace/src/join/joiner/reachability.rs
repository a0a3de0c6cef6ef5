//! Which blocks a search of memory can know, and what it has found.
//!
//! Stage: join. The session searches.

use std::collections::BTreeMap;

use super::{Joiner, RunningImage};
use crate::join::estimate::Estimate;
use crate::join::reachability::{Reachability, UnreachableSite, UnreachableSum};
use crate::join::update::StackId;
use crate::reachability::{Found, KnownBlocks, LiveBlock};

impl Joiner {
    /// The blocks of a running process whose joined events are up to date.
    pub fn known_blocks(&self, image: RunningImage) -> Option<KnownBlocks> {
        let process = self.running(image)?;
        let entry = self.ledger.processes().get(process)?;
        let live = entry.blocks().map(|(id, block)| LiveBlock {
            id,
            address: block.address,
            size: block.size,
            born: block.time,
        });
        let record = entry.record();
        let mapped = self.mappings.of(process);
        Some(KnownBlocks {
            live: live.collect(),
            are_all: self.records_mappings
                && !self.facts.may_lack_calls()
                && self.earlier.is_traced_from_its_beginning(image.pid)
                && record.lost == 0
                && record.untracked_frees == 0
                && record.duty_cycle.is_none()
                && record.traced.is_none(),
            mapped: mapped.map(|(start, end, _)| (start, end)).collect(),
        })
    }

    /// Adds what was found in a process. Blocks that were freed meanwhile are left out.
    pub fn set_reachability(
        &mut self,
        image: RunningImage,
        mut facts: Reachability,
        found: &Found,
    ) {
        let Some(process) = self.running(image) else {
            return;
        };
        let Some(entry) = self.ledger.processes().get(process) else {
            return;
        };
        let mut sums: BTreeMap<StackId, [Summed; 2]> = BTreeMap::new();
        for it in &found.unreached {
            let block = entry.block(it.id);
            let Some((block, stack)) =
                block.and_then(|block| Some((block, self.ledger.stack_of(block.site)?)))
            else {
                facts.freed_blocks += 1;
                continue;
            };
            let [direct, indirect] = sums.entry(stack).or_default();
            let sum = if it.is_direct { direct } else { indirect };
            sum.estimate += Estimate::of(block.size, block.mean);
            sum.mean = sum.mean.max(block.mean);
        }
        facts.process = process;
        (facts.judged_blocks, facts.judged_bytes) = found.judged;
        facts.young_blocks = found.too_young;
        facts.later_readings = found.readings;
        facts.sites = sums
            .into_iter()
            .map(|(stack, [direct, indirect])| UnreachableSite {
                stack,
                direct: direct.sum(),
                indirect: indirect.sum(),
            })
            .collect();
        self.reachability.push(facts);
    }
}

/// Some blocks that nothing points to.
#[derive(Debug, Default)]
struct Summed {
    estimate: Estimate,
    /// The largest mean of bytes between samples.
    mean: u64,
}

impl Summed {
    fn sum(&self) -> UnreachableSum {
        let blocks = self.estimate.count().as_peak();
        let bytes = self.estimate.bytes.as_peak();
        UnreachableSum {
            blocks: blocks.bytes,
            blocks_error: blocks.error,
            blocks_unseen: blocks.unseen,
            bytes: bytes.bytes,
            bytes_error: bytes.error,
            bytes_unseen: bytes.unseen,
            mean_bytes: if self.mean > 1 { self.mean } else { 0 },
        }
    }
}
