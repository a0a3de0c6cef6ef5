//! Checks the limits of the process: open files, address space and memory.
//!
//! Part of the session. Each message names the limit to raise, or the option that uses less.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, bail};
use rustix::process::{Resource, getrlimit};

use crate::config::RunConfig;
use crate::text::bytes;

/// Fewest descriptors that a run needs: some probes, a ring for each processor, a few files.
const FEWEST_FILES: u64 = 256;

/// Least address space that a run needs: for the program, its threads, and the mapped memory of the kernel.
const LEAST_SPACE: u64 = 512 << 20;

/// Refuses limits with which a run would fail half-way, and warns of a memory limit that might end it.
pub(super) fn check(config: &RunConfig) -> Result<()> {
    // The soft limit was raised to the hard limit already.
    if let Some(most) = getrlimit(Resource::Nofile).maximum
        && most < FEWEST_FILES
    {
        bail!(
            "heaptrace needs at least {FEWEST_FILES} open files, and its limit is {most}: raise the limit \
             (`ulimit -Hn 4096`, or LimitNOFILE= of its service)"
        );
    }
    if let Some(most) = getrlimit(Resource::As).current
        && most < LEAST_SPACE
    {
        bail!(
            "heaptrace needs at least {} of address space, and its limit is {}: raise the limit (`ulimit -v unlimited`, or \
             LimitAS= of its service)",
            bytes(LEAST_SPACE),
            bytes(most)
        );
    }
    if let Some(most) = group_limit()
        && most < config.max_memory
    {
        tracing::warn!(
            "the control group of heaptrace is limited to {} of memory, less than --max-memory {}: lower --max-memory, or \
             raise the limit (memory.max, or MemoryMax= of its service)",
            bytes(most),
            bytes(config.max_memory)
        );
    }
    Ok(())
}

/// Adds what the user can do to an error that comes from a limit.
pub(super) fn advise(error: Error) -> Error {
    let number = error.chain().find_map(|cause| {
        let cause: &io::Error = cause.downcast_ref()?;
        cause.raw_os_error()
    });
    match number {
        Some(libc::ENOMEM) => error.context(
            "there is not enough memory: lower --max-memory, or raise the limit (memory.max of the control group, \
             `ulimit -v`)",
        ),
        Some(libc::EMFILE) => error.context(
            "there are not enough descriptors: raise the limit (`ulimit -Hn`, or LimitNOFILE= of its service)",
        ),
        _ => error,
    }
}

/// The lowest memory limit of the control groups of this process.
fn group_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().filter_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next()?, words.next()?.trim_start_matches('/'));
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        lowest(&PathBuf::from(root).join(path), name)
    });
    limits.min()
}

/// The lowest limit in a folder and its parent folders.
fn lowest(folder: &Path, name: &str) -> Option<u64> {
    let limit = |folder: &Path| -> Option<u64> {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        text.trim().parse().ok()
    };
    folder.ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the lowest limit on the way to the root counts, and that `max` is no limit.
    #[test]
    fn the_lowest_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        assert_eq!(lowest(&inner, "memory.max"), None);
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(lowest(&inner, "memory.max"), None);
        fs::write(root.path().join("a/memory.max"), "67108864\n").unwrap();
        fs::write(root.path().join("memory.max"), "134217728\n").unwrap();
        assert_eq!(lowest(&inner, "memory.max"), Some(64 << 20));
    }

    /// Check that an error from a limit names the limit, also inside other errors, and that other errors don't.
    #[test]
    fn limits_are_named() {
        let caused = |number: i32| {
            let error =
                Error::new(io::Error::from_raw_os_error(number)).context("the kernel refused");
            format!("{:#}", advise(error))
        };
        assert!(caused(libc::ENOMEM).contains("--max-memory"));
        assert!(caused(libc::EMFILE).contains("ulimit -Hn"));
        assert!(caused(libc::EPERM).starts_with("the kernel refused"));
    }
}
