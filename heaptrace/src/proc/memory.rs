//! The resident memory of a process, from `/proc/PID/status`.
//!
//! Part of `proc`. Must not know what is done with the numbers.

use std::fs;

/// Resident memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Now.
    pub now: u64,
    /// The most at a time.
    pub peak: u64,
}

/// The resident memory of a process; `None` if it has ended, or has no memory of its own.
pub fn resident(pid: u32) -> Option<Resident> {
    parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse(status: &str) -> Option<Resident> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(Resident {
        now: bytes("VmRSS:")?,
        peak: bytes("VmHWM:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both numbers are read in bytes, and that a process without memory has none.
    #[test]
    fn numbers_are_read_in_bytes() {
        let status = "Name:\tVmRSS: 7 kB\nVmHWM:\t    1840 kB\nVmRSS:\t     12 kB\n";
        let (now, peak) = (12 << 10, 1840 << 10);
        assert_eq!(parse(status), Some(Resident { now, peak }));
        assert_eq!(parse("Name:\tkthreadd\n"), None);
        let own = resident(std::process::id()).unwrap();
        assert!(own.now > 0 && own.peak >= own.now, "{own:?}");
    }
}
