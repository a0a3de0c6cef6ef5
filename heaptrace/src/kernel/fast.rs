//! What the kernel program knows of the fast path: its processes, their hints, and the threads to stop.
//!
//! Part of `kernel`. Must not know how a process gets there.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Result;
use aya::maps::{Array, ArrayOfMaps, HashMap, MapData, MapError};
use heaptrace_common::hints::{HINT_SLOTS, address_slot, page_slot, value};
use heaptrace_common::sampling;
use heaptrace_common::wire::{Block, BlockKey, setting};

use super::mapped_array::MappedArray;
use super::pod::Wire;
use super::program::Program;

/// The hint array of a process.
pub struct Hints {
    map: MapData,
    slots: MappedArray,
}

impl Hints {
    /// An array without blocks.
    pub fn new() -> Result<Self> {
        let (map, slots) = MappedArray::create("HINTS_OF_ONE", HINT_SLOTS)?;
        Ok(Self { map, slots })
    }

    /// Counts a block that the kernel program did not count, because it was recorded before the process had hints.
    pub fn add(&self, address: u64) {
        self.change(address, 1);
    }

    /// Uncounts such a block.
    pub fn remove(&self, address: u64) {
        self.change(address, 1_u64.wrapping_neg());
    }

    fn change(&self, address: u64, by: u64) {
        let slot = address_slot(address) as usize;
        self.slots.add(slot, value(address).wrapping_mul(by));
        self.slots.add(page_slot(address) as usize, by);
    }
}

impl AsFd for Hints {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.fd().as_fd()
    }
}

impl Program {
    /// Lets a process have these hints from now on. Its forked children share them.
    pub fn set_hints(&mut self, pid: u32, index: u32, hints: &Hints) -> Result<()> {
        let mut arrays: ArrayOfMaps<_, MapData> = ArrayOfMaps::try_from(self.map_mut("HINTS")?)?;
        arrays.set(index, &hints.map, 0)?;
        let mut processes = HashMap::<_, u32, u64>::try_from(self.map_mut("FAST_PROCESSES")?)?;
        Ok(processes.insert(pid, u64::from(index) + 1, 0)?)
    }

    /// Lets a process have no hints, if it has some.
    pub fn remove_hints(&mut self, pid: u32) -> Result<()> {
        let mut processes = HashMap::<_, u32, u64>::try_from(self.map_mut("FAST_PROCESSES")?)?;
        match processes.remove(&pid) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a process has hints.
    pub fn has_hints(&self, pid: u32) -> Result<bool> {
        let processes = HashMap::<_, u32, u64>::try_from(self.map("FAST_PROCESSES")?)?;
        match processes.get(&pid, 0) {
            Ok(_) => Ok(true),
            Err(MapError::KeyNotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The processes with hints, forked children included: the index of the hints of each. Takes as long as if all processes
    /// that fit into the map were there.
    pub fn hinted(&self) -> Result<BTreeMap<u32, u32>> {
        let processes = HashMap::<_, u32, u64>::try_from(self.map("FAST_PROCESSES")?)?;
        let hinted = processes.iter().filter_map(Result::ok);
        Ok(hinted
            .map(|(pid, hint)| (pid, (hint as u32).saturating_sub(1)))
            .collect())
    }

    /// The thread of a process whose probe hit was counted last.
    pub fn last_hit(&self, pid: u32) -> Result<Option<u32>> {
        let hits = HashMap::<_, u32, u32>::try_from(self.map("LAST_HITS")?)?;
        Ok(hits.get(&pid, 0).ok())
    }

    /// Lets a thread get a signal at its next probe hit.
    pub fn stop_at_hit(&mut self, tid: u32, signal: u32) -> Result<()> {
        let mut stops = HashMap::<_, u32, u32>::try_from(self.map_mut("STOPS")?)?;
        stops.insert(tid, signal, 0)?;
        self.count_stops()
    }

    /// Lets a thread get no signal, if it has not got one yet.
    pub fn forget_stop(&mut self, tid: u32) -> Result<()> {
        let mut stops = HashMap::<_, u32, u32>::try_from(self.map_mut("STOPS")?)?;
        let _ = stops.remove(&tid);
        self.count_stops()
    }

    fn count_stops(&mut self) -> Result<()> {
        let stops = HashMap::<_, u32, u32>::try_from(self.map("STOPS")?)?;
        let waiting = stops.keys().count() as u64;
        let settings = self.map_mut("SETTINGS")?;
        Ok(Array::<_, u64>::try_from(settings)?.set(setting::STOPS, waiting, 0)?)
    }

    /// The mean between samples of a process as it is now.
    pub fn mean_of(&self, pid: u32) -> Result<u64> {
        let settings = Array::<_, u64>::try_from(self.map("SETTINGS")?)?;
        let shifts = HashMap::<_, u32, u32>::try_from(self.map("SHIFTS")?)?;
        let shift = match shifts.get(&pid, 0) {
            Ok(shift) => shift,
            Err(_) => settings.get(&setting::SHIFT, 0)? as u32,
        };
        Ok(sampling::shifted(settings.get(&setting::MEAN, 0)?, shift))
    }

    /// The recorded blocks of a process that have no hint.
    pub fn without_hint(&self, pid: u32) -> Result<Vec<(BlockKey, u64)>> {
        let Some(serial) = self.serial_of(pid)? else {
            return Ok(Vec::new());
        };
        let blocks = self.live()?;
        let blocks = blocks.iter().filter_map(Result::ok);
        Ok(blocks
            .filter(|(key, block)| key.0.process == serial && block.0.hint == 0)
            .map(|(key, block)| (key.0, block.0.id))
            .collect())
    }

    /// Whether the live map has this block.
    pub fn has_block(&self, key: BlockKey, id: u64) -> Result<bool> {
        let block = self.live()?.get(&Wire(key), 0);
        Ok(block.is_ok_and(|block: Wire<Block>| block.0.id == id))
    }

    fn serial_of(&self, pid: u32) -> Result<Option<u64>> {
        let state = self.processes()?.get(&pid, 0).ok();
        Ok(state.map(|state| state.0.process).filter(|it| *it != 0))
    }
}
