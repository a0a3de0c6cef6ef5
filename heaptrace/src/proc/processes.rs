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

/// When a process started, in clock ticks after the machine did. With its id, this names a process for good. `None` if it has
/// ended.
pub fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fields(pid)?)
}

/// Whether a process that started at this time has not ended yet.
pub fn is_running(pid: u32, start_time: u64) -> bool {
    fields(pid).is_some_and(|fields| {
        !fields.starts_with(['Z', 'X']) && parse_start_time(&fields) == Some(start_time)
    })
}

/// The fields of `/proc/PID/stat` from the third on, which is the state.
fn fields(pid: u32) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The second field is a name in parentheses, and may hold blanks and parentheses.
    let (_, behind) = stat.rsplit_once(") ")?;
    Some(behind.to_owned())
}

fn parse_start_time(fields: &str) -> Option<u64> {
    const FIELD: usize = 22;
    fields.split(' ').nth(FIELD - 3)?.parse().ok()
}

fn number(entry: &DirEntry) -> Option<u32> {
    entry.file_name().to_str()?.parse().ok()
}
