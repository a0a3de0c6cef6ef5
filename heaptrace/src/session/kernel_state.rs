//! The part of a run's state that is not in the streams: the kernel program's counters, and marks in its maps.
//!
//! Part of the session. A mark stands for an event that found no room in the ring. Sweeping joins the marked
//! entries of the kernel's maps, and removes them. Must not know the probes.

use std::time::Instant;

use anyhow::Result;
use heaptrace_common::counters::{COUNTERS, Counter};
use heaptrace_common::wire::BlockKey;

use super::drain::Drain;
use super::seldom::Seldom;
use crate::events::record::Event;
use crate::join::{Joiner, Loss};
use crate::kernel::mapped_array;
use crate::kernel::program::{self, Program};
use crate::sys::{self, Usage};

/// Most ended processes that wait for the next update to be closed.
const MAX_ENDING: usize = 256;

/// The usage of this process, without the memory of the kernel's maps, which is counted apart.
pub(super) fn own_usage() -> Usage {
    let mut usage = sys::own_usage();
    usage.peak_bytes = usage.peak_bytes.saturating_sub(mapped_array::resident());
    usage
}

/// How many marks in the kernel's maps had been counted at the last sweep.
#[derive(Default)]
pub(super) struct Swept {
    frees: u64,
    /// Whether the next sweep is due without new marks: a mark that is made for a lost allocation is counted
    /// before it is made.
    again: bool,
    /// When the size of the maps was last looked at, which takes hundreds of calls: the targets may wait for the processor meanwhile.
    measured: Seldom,
}

impl Swept {
    /// Brings in counters, sizes and the state of processes, sweeps if there are new marks, and closes the
    /// processes that have ended.
    pub(super) fn read_kernel(
        &mut self,
        program: &Program,
        drain: &mut Drain,
        joiner: &mut Joiner,
    ) -> Result<()> {
        let counters = self.sweep(program, drain, joiner)?;
        for (counter, count) in Counter::ALL.iter().zip(counters) {
            joiner.set_counter(*counter, count);
        }
        drain.report(joiner);
        joiner.set_short_lived(program.short_lived()?);
        joiner.set_sizes(program.sizes()?);
        joiner.set_agent_usage(own_usage());
        // A process may end while its entry is read.
        for (_, state) in program.processes()?.iter().filter_map(Result::ok) {
            joiner.set_process_counters(&state.0);
        }
        joiner.measure_memory();
        Ok(())
    }

    /// Brings in the size of the kernel's maps, now and then.
    pub(super) fn measure_maps_if_due(&mut self, joiner: &mut Joiner) {
        if self.measured.is_due() {
            let begun = Instant::now();
            joiner.set_kernel_map_bytes(program::map_bytes());
            self.measured.done(begun);
        }
    }

    /// Closes the ended processes before the next update if there are many.
    pub(super) fn limit_ending(
        &mut self,
        program: &Program,
        drain: &mut Drain,
        joiner: &mut Joiner,
    ) -> Result<()> {
        if joiner.ending() > MAX_ENDING {
            self.sweep(program, drain, joiner)?;
        }
        Ok(())
    }

    /// Sweeps if there are new marks, and closes the processes that had ended before: all of their marks are
    /// swept. Returns the kernel program's counters.
    fn sweep(
        &mut self,
        program: &Program,
        drain: &mut Drain,
        joiner: &mut Joiner,
    ) -> Result<[u64; COUNTERS]> {
        join_marked_ends(program, drain, joiner)?;
        let ending = joiner.ending();
        // Read after the ends were: they include every mark of these processes.
        let counters = program.counters()?;
        let count = |counter: Counter| counters[counter as usize];
        // A lost allocation proves that the block at its address was freed, and marks that block.
        let frees = count(Counter::FreesMarked) + count(Counter::RingFull);
        let is_new = frees > self.frees;
        if is_new || self.again {
            sweep_mappings(program, drain, joiner)?;
            sweep_blocks(program, drain, joiner)?;
            self.frees = frees;
            self.again = is_new;
        }
        joiner.close(ending);
        Ok(counters)
    }
}

/// Joins the ends of processes whose events found no room in the ring.
fn join_marked_ends(program: &Program, drain: &mut Drain, joiner: &mut Joiner) -> Result<()> {
    let serials: Vec<u64> = program.ended()?.keys().filter_map(Result::ok).collect();
    let mut ends = Vec::new();
    for serial in serials {
        ends.extend(program.take_end(serial)?);
    }
    // All other events of these processes are in the ring since before.
    if !ends.is_empty() {
        drain.empty(joiner);
    }
    ends.into_iter()
        .for_each(|end| joiner.event(Event::ProcessEnd(end)));
    Ok(())
}

/// Joins the frees whose events found no room in the ring.
fn sweep_blocks(program: &Program, drain: &mut Drain, joiner: &mut Joiner) -> Result<()> {
    let marked: Vec<(BlockKey, u64)> = program
        .live()?
        .iter()
        .filter_map(Result::ok)
        .filter(|(_, block)| block.0.freed_at != 0)
        .map(|(key, block)| (key.0, block.0.id))
        .collect();
    // The allocations of these blocks are in the ring since before their frees were marked.
    if !marked.is_empty() {
        drain.empty(joiner);
    }
    for (key, id) in marked {
        // A new block at the same address may have replaced the marked one meanwhile, freed or not.
        if let Some(block) = program.take_block(key)? {
            if block.id != id {
                drain.empty(joiner);
            }
            // If it was not freed, its free will be missed, so it is joined as freed now: one live block less,
            // which is counted, but never a leak of a freed block.
            if block.freed_at == 0 {
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
