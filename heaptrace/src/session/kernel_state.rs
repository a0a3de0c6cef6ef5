//! The part of a run's state that is not in the streams: the kernel program's counters, and marks in its maps.
//!
//! Part of the session. A mark stands for an event that found no room in the ring. Sweeping joins the marked
//! entries of the kernel's maps, and removes them. Must not know the probes.

use anyhow::Result;
use heaptrace_common::counters::Counter;
use heaptrace_common::wire::BlockKey;

use super::drain::Drain;
use crate::events::record::Event;
use crate::join::{Joiner, Loss};
use crate::kernel::program::{self, Program};
use crate::sys;

/// How many marks in the kernel's maps had been counted at the last sweep.
#[derive(Default)]
pub(super) struct Swept {
    frees: u64,
    process_ends: u64,
}

impl Swept {
    /// Brings in counters, sizes and the state of processes, and sweeps if there are new marks.
    pub(super) fn read_kernel(
        &mut self,
        program: &Program,
        drain: &mut Drain,
        joiner: &mut Joiner,
    ) -> Result<()> {
        let counters = program.counters()?;
        for (counter, count) in Counter::ALL.iter().zip(counters) {
            joiner.set_counter(*counter, count);
        }
        drain.report(joiner);
        let count = |counter: Counter| counters[counter as usize];
        // A lost allocation proves that the block at its address was freed, and marks that block.
        let frees = count(Counter::FreesMarked) + count(Counter::RingFull);
        if frees > self.frees {
            sweep_mappings(program, drain, joiner)?;
            sweep_blocks(program, drain, joiner)?;
            self.frees = frees;
        }
        let process_ends = count(Counter::EndsMarked);
        if process_ends > self.process_ends {
            sweep_process_ends(program, joiner)?;
            self.process_ends = process_ends;
        }
        joiner.set_sizes(program.sizes()?);
        joiner.set_kernel_map_bytes(program::map_bytes());
        joiner.set_agent_usage(sys::own_usage());
        // A process may end while its entry is read.
        for (_, state) in program.processes()?.iter().filter_map(Result::ok) {
            joiner.set_process_counters(&state.0);
        }
        Ok(())
    }
}

/// Joins the frees whose events found no room in the ring.
fn sweep_blocks(program: &Program, drain: &mut Drain, joiner: &mut Joiner) -> Result<()> {
    // The allocations of these blocks are in the ring since before their frees were marked.
    drain.empty(joiner);
    let marked: Vec<BlockKey> = program
        .live()?
        .iter()
        .filter_map(Result::ok)
        .filter(|(_, block)| block.0.freed_at != 0)
        .map(|(key, _)| key.0)
        .collect();
    for key in marked {
        // A new block at the same address may have replaced the marked one meanwhile. Then the new block is
        // removed here, and its free will be missed, so it is joined as freed now: one live block less, which
        // is counted, but never a leak of a freed block.
        if let Some(block) = program.take_block(key)? {
            if block.freed_at == 0 {
                drain.empty(joiner);
                joiner.lost_one(Loss::SweptLive);
            }
            joiner.swept(key.process, block.id);
        }
    }
    Ok(())
}

/// Joins the unmappings whose events found no room in the ring.
fn sweep_mappings(program: &Program, drain: &mut Drain, joiner: &mut Joiner) -> Result<()> {
    let unmapped = program.take_unmapped()?;
    // The mappings that they removed are in the ring since before these entries were made.
    if !unmapped.is_empty() {
        drain.empty(joiner);
    }
    unmapped.iter().for_each(|it| joiner.unmapped(it));
    Ok(())
}

/// Joins the ends of processes whose events found no room in the ring.
fn sweep_process_ends(program: &Program, joiner: &mut Joiner) -> Result<()> {
    let ended: Vec<u64> = program.ended()?.keys().filter_map(Result::ok).collect();
    for serial in ended {
        if let Some(end) = program.take_end(serial)? {
            joiner.event(Event::ProcessEnd(end));
        }
    }
    Ok(())
}
