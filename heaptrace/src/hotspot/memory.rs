//! The memory of a process.
//!
//! Part of `hotspot`. Must not know what is read.

use crate::proc::address_space::AddressSpace;

/// Access to the memory of a process. All of it is untrusted, and may change between two reads.
pub trait Memory {
    /// Reads from an address on. Returns how many bytes were read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// Reads bytes; `None` if not all of them can be read.
    fn bytes(&self, address: u64, count: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; count];
        (self.read(address, &mut buffer) == count).then_some(buffer)
    }

    /// The 8 bytes at an address.
    fn word(&self, address: u64) -> Option<u64> {
        let mut buffer = [0; 8];
        (self.read(address, &mut buffer) == 8).then_some(u64::from_le_bytes(buffer))
    }

    /// The 4 bytes at an address.
    fn half(&self, address: u64) -> Option<u32> {
        let mut buffer = [0; 4];
        (self.read(address, &mut buffer) == 4).then_some(u32::from_le_bytes(buffer))
    }

    /// The 2 bytes at an address.
    fn short(&self, address: u64) -> Option<u16> {
        let mut buffer = [0; 2];
        (self.read(address, &mut buffer) == 2).then_some(u16::from_le_bytes(buffer))
    }

    /// The string of C at an address, up to so many bytes.
    fn text(&self, address: u64, most: usize) -> Option<String> {
        let mut buffer = vec![0; most];
        let read = self.read(address, &mut buffer);
        buffer.truncate(read);
        let end = buffer.iter().position(|byte| *byte == 0)?;
        buffer.truncate(end);
        String::from_utf8(buffer).ok()
    }
}

impl Memory for AddressSpace {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        Self::read(self, address, buffer)
    }
}
