//! Reads what of processes' memory is resident, in runs that keep each block: at the end, and from time to time.
//!
//! Part of the session. Processes are not stopped for it. Reading takes the kernel a while in a large process, and it keeps the process
//! from changing its mappings meanwhile: so it is done seldom.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::Result;

use super::drain::Drain;
use super::seldom::Seldom;
use crate::config::{KeptBlocks, RunConfig};
use crate::join::{Joiner, MemoryMap, Note, RunningImage};
use crate::proc::residency;
use crate::sys;

/// Most processes whose memory is read.
const MAX_PROCESSES: usize = 64;

/// Most processes of which it is remembered whether their memory was read.
const MAX_KNOWN: usize = 1 << 16;

/// The readings of a run.
#[derive(Debug)]
pub(super) struct MemoryReading {
    is_wanted: bool,
    times: Seldom,
    /// What was read.
    read: Vec<(RunningImage, MemoryMap)>,
    covered: Covered,
}

impl MemoryReading {
    pub(super) fn new(config: &RunConfig) -> Self {
        Self {
            is_wanted: matches!(config.blocks, KeptBlocks::Lasting | KeptBlocks::All),
            times: Seldom::default(),
            read: Vec::new(),
            covered: Covered::default(),
        }
    }

    /// Reads if the last time was long ago or this is needed now, and joins events meanwhile.
    pub(super) fn read_if_due(
        &mut self,
        drain: &mut Drain,
        joiner: &mut Joiner,
        begin: Instant,
        is_needed: bool,
    ) -> Result<()> {
        if !self.is_wanted || !(is_needed || self.times.is_due()) {
            return Ok(());
        }
        let images = joiner.with_blocks();
        let begun = Instant::now();
        let results = drain.during(joiner, || read(&images, begin))?;
        self.keep(results);
        self.times.done(begun);
        Ok(())
    }

    /// Reads now.
    pub(super) fn read(&mut self, joiner: &Joiner, begin: Instant) {
        if self.is_wanted {
            self.keep(read(&joiner.with_blocks(), begin));
        }
    }

    fn keep(&mut self, results: Vec<(RunningImage, Outcome)>) {
        for (image, outcome) in results {
            match outcome {
                Outcome::Read(map) => {
                    self.covered.read(image.serial);
                    self.read.push((image, map));
                }
                Outcome::NotRead => self.covered.not_read(image.serial),
                Outcome::Ended => {}
            }
        }
    }

    /// Hands over what was read. The events of that time must be joined.
    pub(super) fn hand_over(&mut self, joiner: &mut Joiner) {
        let read = std::mem::take(&mut self.read);
        if !read.is_empty() {
            let left_out = read
                .into_iter()
                .map(|(image, map)| joiner.set_memory(image, map));
            let left_out = left_out.sum();
            joiner.set_noted(Note::MapPartsNotKept, left_out);
        }
        joiner.set_noted(Note::MemoryNotRead, self.covered.never_read());
    }
}

/// What became of a reading of a process's memory.
#[derive(Debug)]
enum Outcome {
    Read(MemoryMap),
    /// There were too many processes, or the kernel refused.
    NotRead,
    Ended,
}

fn read(images: &[RunningImage], begin: Instant) -> Vec<(RunningImage, Outcome)> {
    let outcomes = images.iter().enumerate().map(|(rank, image)| {
        let outcome = match rank < MAX_PROCESSES {
            true => read_one(image.pid, begin),
            false => Outcome::NotRead,
        };
        (*image, outcome)
    });
    outcomes.collect()
}

fn read_one(pid: u32, begin: Instant) -> Outcome {
    let begun = Instant::now();
    match residency::read(pid) {
        Ok(residency) => Outcome::Read(MemoryMap {
            at_ns: (begun - begin).as_nanos() as u64,
            took_ns: begun.elapsed().as_nanos() as u64,
            residency,
            mapped: Vec::new(),
            mapped_left_out: 0,
        }),
        Err(why) if sys::is_gone(&why) => Outcome::Ended,
        Err(_) => Outcome::NotRead,
    }
}

/// Whose memory was read at least once, by the serial numbers of images.
#[derive(Debug, Default)]
struct Covered {
    was_read: HashMap<u64, bool>,
    /// Images that found no room there, each as often as its memory was not read.
    without_room: u64,
}

impl Covered {
    fn read(&mut self, serial: u64) {
        if self.has_room(serial) {
            self.was_read.insert(serial, true);
        }
    }

    fn not_read(&mut self, serial: u64) {
        match self.has_room(serial) {
            true => {
                self.was_read.entry(serial).or_insert(false);
            }
            false => self.without_room += 1,
        }
    }

    fn has_room(&self, serial: u64) -> bool {
        self.was_read.len() < MAX_KNOWN || self.was_read.contains_key(&serial)
    }

    /// The number of images whose memory was not read at any time.
    fn never_read(&self) -> u64 {
        let unread = self.was_read.values().filter(|was_read| !**was_read);
        unread.count() as u64 + self.without_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that images count whose memory was never read, each once, and not those that were read before or after.
    #[test]
    fn images_that_were_never_read_are_counted() {
        let mut covered = Covered::default();
        covered.read(1);
        for serial in [1, 2, 3, 2] {
            covered.not_read(serial);
        }
        assert_eq!(covered.never_read(), 2);
        covered.read(3);
        assert_eq!(covered.never_read(), 1);
        for serial in 0..MAX_KNOWN as u64 {
            covered.read(10 + serial);
        }
        covered.not_read(5);
        assert_eq!(covered.never_read(), 2);
    }

    /// Check that no process beyond the limit is read, and that all of them are told.
    #[test]
    fn processes_beyond_the_limit_are_told() {
        let image = RunningImage {
            serial: 1,
            pid: std::process::id(),
        };
        let gone = RunningImage {
            serial: 2,
            pid: i32::MAX as u32,
        };
        let images = [&[gone][..], &[image; MAX_PROCESSES]].concat();
        let outcomes = read(&images, Instant::now());
        assert_eq!(outcomes.len(), MAX_PROCESSES + 1);
        assert!(matches!(outcomes[0], (_, Outcome::Ended)));
        assert!(matches!(outcomes[1], (_, Outcome::Read(_))));
        assert!(matches!(outcomes[MAX_PROCESSES], (_, Outcome::NotRead)));
    }
}
