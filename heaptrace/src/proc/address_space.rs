//! The memory of a process, from `/proc/PID/mem`.
//!
//! Part of `proc`. Must not know what is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The memory of a running process. It stays that of the program that the process ran when this was opened.
#[derive(Debug)]
pub struct AddressSpace(File);

impl AddressSpace {
    /// Opens the memory of a process, to read.
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Self(File::open(format!("/proc/{pid}/mem"))?))
    }

    /// Reads from an address on. Returns how many bytes were read.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        // Addresses from 2^63 on are no offsets, and belong to no process.
        self.0.read_at(buffer, address).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that memory is read, and that there is none at addresses that no process has.
    #[test]
    fn memory_is_read() {
        let own = AddressSpace::open(std::process::id()).unwrap();
        let value = 0x1234_5678_u32;
        let mut buffer = [0; 4];
        assert_eq!(own.read(&raw const value as u64, &mut buffer), 4);
        assert_eq!(u32::from_ne_bytes(buffer), value);
        for nowhere in [0, 1 << 63, u64::MAX] {
            assert_eq!(own.read(nowhere, &mut buffer), 0);
        }
    }
}
