//! Lists processes and threads by `/proc`.
//!
//! Part of `proc`. Yields ids only; must not know what is mapped or probed.

use std::fs::{self, DirEntry};
use std::io;

/// Ids of all processes except this one.
pub fn processes() -> io::Result<Vec<u32>> {
    let own = std::process::id();
    Ok(fs::read_dir("/proc")?
        .filter_map(|entry| number(&entry.ok()?))
        .filter(|pid| *pid != own)
        .collect())
}

/// Ids of the threads of a process.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        threads.extend(number(&entry?));
    }
    Ok(threads)
}

fn number(entry: &DirEntry) -> Option<u32> {
    entry.file_name().to_str()?.parse().ok()
}
