//! As whom a process runs, and under which id it knows itself.
//!
//! Part of `proc`.

use std::fs;

/// The ids of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Its process id in the innermost namespace: what `getpid` returns.
    pub own_pid: u32,
    /// Its users: real, effective, saved, and the one for files.
    pub users: Vec<u32>,
}

/// The ids of a running process. `None` if it has ended.
pub fn of(pid: u32) -> Option<ProcessIdentity> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    parse(&String::from_utf8_lossy(&status))
}

fn parse(status: &str) -> Option<ProcessIdentity> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let pids = field("NSpid:")?.split_whitespace();
    let users = field("Uid:")?.split_whitespace();
    Some(ProcessIdentity {
        own_pid: pids.last()?.parse().ok()?,
        users: users.filter_map(|user| user.parse().ok()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the innermost id counts, and that all users are found.
    #[test]
    fn the_innermost_id_counts() {
        let found = parse("Name:\tx\nNSpid:\t4711\t17\t1\nUid:\t1000\t0\t0\t0\n").unwrap();
        assert_eq!((found.own_pid, found.users), (1, vec![1000, 0, 0, 0]));
        assert_eq!(parse("Name:\tx\nUid:\t0\t0\t0\t0\n"), None);
        let own = of(std::process::id()).unwrap();
        assert_eq!(own.own_pid, std::process::id());
        assert_eq!(of(u32::MAX), None);
    }
}
