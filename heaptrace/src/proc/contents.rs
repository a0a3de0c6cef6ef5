//! Opens the memory of a process for reading.
//!
//! Part of `proc`. Must not know what is read. Only the installer opens memory for writing.

use std::fs::File;
use std::io;

/// The memory of a process, by its addresses. It stays that of the program that the process runs now.
pub fn open(pid: u32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/mem"))
}
