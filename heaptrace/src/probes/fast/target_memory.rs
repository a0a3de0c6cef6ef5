//! Memory of a target, and what was written into it.
//!
//! Stage: probes. Memory is reached by `/proc/PID/mem`. Its descriptor belongs to the program that the process ran when it
//! was opened: after `exec` it reaches nothing, so it can't change another program. Must not know what the slots are for.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::FileExt as _;

use super::messages::Slot;
use crate::proc::processes;

/// Bytes of a word.
const WORD: u64 = 8;

/// The memory of one program.
#[derive(Debug)]
pub(super) struct TargetMemory(File);

impl TargetMemory {
    /// Opens the memory of a process that started at this time.
    pub(super) fn open(pid: u32, start_time: u64) -> Result<Self, String> {
        let path = format!("/proc/{pid}/mem");
        let file = OpenOptions::new().read(true).write(true).open(path);
        // The time is read behind the descriptor: if it is right now, the descriptor is this process's.
        match processes::start_time(pid) {
            Some(time) if time == start_time => {}
            Some(_) => return Err("it has ended, and another process has its id".to_owned()),
            None => return Err("it has ended".to_owned()),
        }
        let file = file.map_err(|error| format!("its memory can't be opened: {error}"))?;
        Ok(Self(file))
    }

    /// Another descriptor of the same memory.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(super) fn read<const N: usize>(&self, address: u64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    pub(super) fn read_bytes(&self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    pub(super) fn word(&self, address: u64) -> io::Result<u64> {
        self.read(address).map(u64::from_ne_bytes)
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}

/// The slots of a process that have been written.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenSlots(HashMap<u64, Slot>);

impl WrittenSlots {
    /// Writes slots that have their old value. Returns the addresses of those that now have the new value.
    pub(super) fn write(&mut self, memory: &TargetMemory, slots: &[Slot]) -> Vec<u64> {
        let mut written = Vec::new();
        for slot in slots {
            if self.write_one(memory, slot) {
                written.push(slot.address);
            }
        }
        written
    }

    fn write_one(&mut self, memory: &TargetMemory, slot: &Slot) -> bool {
        let Ok(value) = memory.word(slot.address) else {
            return false;
        };
        // A slot that was written before keeps its first value as the one to restore.
        if let Some(known) = self.0.get(&slot.address)
            && value == known.new
        {
            return known.new == slot.new;
        }
        if value != slot.old || !slot.address.is_multiple_of(WORD) {
            return false;
        }
        // Remembered first: a write that fails halfway doesn't exist, for one word in one page.
        self.0.insert(slot.address, *slot);
        memory.write(slot.address, &slot.new.to_ne_bytes()).is_ok()
    }

    /// Adds slots that were written in a process with the same mapping.
    pub(super) fn add(&mut self, others: &Self) {
        for (address, slot) in &others.0 {
            self.0.entry(*address).or_insert(*slot);
        }
    }

    /// Restores the slots that still have the new value. Returns their number.
    pub(super) fn restore(&self, memory: &TargetMemory) -> u32 {
        let mut restored = 0;
        for slot in self.0.values() {
            let is_new = memory
                .word(slot.address)
                .is_ok_and(|value| value == slot.new);
            if is_new && memory.write(slot.address, &slot.old.to_ne_bytes()).is_ok() {
                restored += 1;
            }
        }
        restored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only slots with their old value are written, that a slot with another value at the end is left alone, and
    /// that memory of another start time is not opened.
    #[test]
    fn slots_are_written_and_restored_by_value() {
        let own = std::process::id();
        let time = processes::start_time(own).unwrap();
        assert!(TargetMemory::open(own, time + 1).is_err());
        let memory = TargetMemory::open(own, time).unwrap();
        let words = [1_u64, 2, 3].map(std::sync::atomic::AtomicU64::new);
        let slot = |at: usize, old, new| Slot {
            address: words[at].as_ptr() as u64,
            old,
            new,
        };
        let values = || {
            words
                .each_ref()
                .map(|word| word.load(std::sync::atomic::Ordering::Relaxed))
        };
        let mut slots = WrittenSlots::default();
        let asked = [slot(0, 1, 11), slot(1, 9, 12), slot(2, 3, 13)];
        assert_eq!(
            slots.write(&memory, &asked),
            [asked[0].address, asked[2].address]
        );
        assert_eq!(values(), [11, 2, 13]);
        assert_eq!(slots.write(&memory, &asked[..1]), [asked[0].address]);
        words[2].store(7, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(slots.restore(&memory), 1);
        assert_eq!(values(), [1, 2, 7]);
        let odd = Slot {
            address: asked[0].address + 1,
            old: 0,
            new: 1,
        };
        assert_eq!(slots.write(&memory, &[odd]), [] as [u64; 0]);
    }
}
