//! heaptrack's own file, version 3, as text: names, stacks, and a line for each allocation and each free.
//!
//! Stage: output. A profile has no single events, so their order is made up: first what was freed before the peak, then the peak,
//! then the end. heaptrack counts a block as temporary if its free directly follows its allocation.

use std::collections::HashMap;
use std::io::Write;

use super::blocks::{Blocks, Fates};
use crate::join::Process;
use crate::output::error::OutputError;
use crate::output::report_input::{ReportInput, process_label};
use crate::output::stacks::Stacks;
use crate::text::escape;

/// The most blocks that are written: some gigabytes before they are compressed.
const MOST_BLOCKS: u64 = 100_000_000;

/// The most processes that an error names.
const MOST_NAMED: usize = 3;

/// Writes the blocks of the only process.
pub(super) fn write(input: &ReportInput<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
    if input.profile.range.is_some_and(|it| it.from_ns > 0) {
        return Err(OutputError::WithoutBeginning);
    }
    let process = only_process(input)?;
    let sites = &input.profile.sites;
    let fates: Vec<_> = sites.iter().map(|site| Fates::of(&site.totals)).collect();
    let blocks = fates
        .iter()
        .fold(0, |sum: u64, it| sum.saturating_add(it.count()));
    if blocks > MOST_BLOCKS {
        return Err(OutputError::TooManyBlocks {
            blocks,
            most: MOST_BLOCKS,
        });
    }
    writeln!(
        out,
        "v 10400 3\n# written by heaptrace from sums: the order of events is made up\nX {}\nI 1000 0",
        escape(&input.profile.info.target)
    )?;
    let mut stacks = Stacks::new(input);
    let traces = sites.iter().map(|site| stacks.inside_process(site) + 1);
    let traces: Vec<_> = traces.collect();
    write_stacks(&stacks, out)?;
    let mut events = Events::new(input.profile.totals.peak_live_bytes, out);
    let parts: Vec<_> = traces.into_iter().zip(fates).collect();
    events.write(&parts, input.profile.duration_ns / 1_000_000)?;
    let resident = process.map_or(0, |it| it.memory.peak_resident);
    writeln!(out, "R {:x}", resident / 4096)?;
    Ok(())
}

/// The process of all sites; `None` if there are no sites.
fn only_process<'a>(input: &ReportInput<'a>) -> Result<Option<&'a Process>, OutputError> {
    let mut bytes = HashMap::<u32, u64>::new();
    for site in &input.profile.sites {
        let sum = bytes.entry(site.process.0).or_default();
        *sum = sum.saturating_add(site.totals.allocated_bytes);
    }
    let process = |id: &u32| input.profile.processes.get(*id as usize);
    if bytes.len() <= 1 {
        return Ok(bytes.keys().next().and_then(process));
    }
    let mut bytes: Vec<_> = bytes.into_iter().collect();
    bytes.sort_unstable_by_key(|(id, bytes)| (std::cmp::Reverse(*bytes), *id));
    let named = bytes
        .iter()
        .filter_map(|(id, _)| process(id))
        .take(MOST_NAMED);
    let named: Vec<_> = named.map(process_label).collect();
    Err(OutputError::SeveralProcesses(named.join(", ")))
}

/// Writes the texts, places and stacks. Each has the number of its line among its kind, from 1 on.
fn write_stacks(stacks: &Stacks<'_>, out: &mut dyn Write) -> Result<(), OutputError> {
    let mut texts = HashMap::<&str, usize>::new();
    for (number, place) in (1..).zip(&stacks.places) {
        let mut ids = [0; 3];
        for (id, text) in ids
            .iter_mut()
            .zip([&place.name, &place.module, &place.file])
        {
            if text.is_empty() {
                continue;
            }
            let next = texts.len() + 1;
            *id = *texts.entry(text).or_insert(next);
            if *id == next {
                writeln!(out, "s {:x} {text}", text.len())?;
            }
        }
        let [name, module, file] = ids;
        // An instruction has an address of its own, so its number will do.
        write!(out, "i {number:x} {module:x} {name:x}")?;
        match file {
            0 => writeln!(out)?,
            file => writeln!(out, " {file:x} {:x}", place.line)?,
        }
    }
    for node in &stacks.nodes {
        let caller = node.caller.map_or(0, |caller| caller + 1);
        writeln!(out, "t {:x} {caller:x}", node.place + 1)?;
    }
    Ok(())
}

/// Blocks of one size and one stack. Two numbers stand for them, so that a free can always name another one than the allocation before.
#[derive(Clone, Copy)]
struct Sized {
    numbers: [u64; 2],
    count: u64,
}

/// The writer of events.
struct Events<'a> {
    out: &'a mut dyn Write,
    /// The most bytes of a block that was freed before the peak: two of them are there at a time, and must not be more than the peak.
    most: u64,
    /// The next number of a size and a stack. Number 0 is special in heaptrack, so no event has it.
    next: u64,
}

impl<'a> Events<'a> {
    fn new(peak: u64, out: &'a mut dyn Write) -> Self {
        Self {
            out,
            most: peak / 2,
            next: 0,
        }
    }

    fn write(&mut self, parts: &[(u32, Fates)], milliseconds: u64) -> Result<(), OutputError> {
        let of = |blocks: fn(&Fates) -> Blocks| -> Vec<_> {
            let sizes =
                |(trace, fates): &(u32, Fates)| blocks(fates).sizes().map(|it| (*trace, it));
            parts.iter().flat_map(sizes).collect()
        };
        let most = self.most;
        let capped = |blocks: Vec<(u32, (u64, u64))>| -> Vec<_> {
            let blocks = blocks.into_iter();
            blocks
                .map(|(trace, (size, count))| (trace, (size.min(most), count)))
                .collect()
        };
        let freed = self.sizes(&capped(of(|it| it.freed)))?;
        let temporary = self.sizes(&capped(of(|it| it.temporary)))?;
        let peak = self.sizes(&of(|it| it.peak))?;
        let both = self.sizes(&of(|it| it.both))?;
        let end = self.sizes(&of(|it| it.end))?;
        self.time(0)?;
        self.churn(&freed)?;
        for block in &temporary {
            for _ in 0..block.count {
                self.allocate(block.numbers[0])?;
                self.free(block.numbers[0])?;
            }
        }
        self.time(milliseconds / 2)?;
        self.each(&peak, Self::allocate)?;
        self.each(&both, Self::allocate)?;
        self.each(&peak, Self::free)?;
        self.each(&end, Self::allocate)?;
        self.time(milliseconds)
    }

    /// Writes blocks that are freed after the next one of them was allocated.
    fn churn(&mut self, blocks: &[Sized]) -> Result<(), OutputError> {
        let mut before = None;
        for block in blocks {
            for index in 0..block.count {
                let number = block.numbers[(index % 2) as usize];
                self.allocate(number)?;
                if let Some(before) = before.replace(number) {
                    self.free(before)?;
                }
            }
        }
        before.map_or(Ok(()), |before| self.free(before))
    }

    /// Writes sizes with their stacks.
    fn sizes(&mut self, blocks: &[(u32, (u64, u64))]) -> Result<Vec<Sized>, OutputError> {
        let mut written = Vec::new();
        for (trace, (size, count)) in blocks.iter().filter(|(_, (_, count))| *count > 0) {
            let lines = if self.next == 0 { 3 } else { 2 };
            for _ in 0..lines {
                writeln!(self.out, "a {size:x} {trace:x}")?;
            }
            self.next += lines;
            written.push(Sized {
                numbers: [self.next - 2, self.next - 1],
                count: *count,
            });
        }
        Ok(written)
    }

    fn each(
        &mut self,
        blocks: &[Sized],
        event: fn(&mut Self, u64) -> Result<(), OutputError>,
    ) -> Result<(), OutputError> {
        for block in blocks {
            for _ in 0..block.count {
                event(self, block.numbers[0])?;
            }
        }
        Ok(())
    }

    fn allocate(&mut self, number: u64) -> Result<(), OutputError> {
        Ok(writeln!(self.out, "+ {number:x}")?)
    }

    fn free(&mut self, number: u64) -> Result<(), OutputError> {
        Ok(writeln!(self.out, "- {number:x}")?)
    }

    fn time(&mut self, milliseconds: u64) -> Result<(), OutputError> {
        Ok(writeln!(self.out, "c {milliseconds:x}")?)
    }
}
