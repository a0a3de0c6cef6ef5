//! Parses the values of options: times, sizes, users, patterns.
//!
//! Part of the command line. Pure functions, whose errors are for users. Must not know clap, nor what a value
//! is used for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use heaptrace_common::names::{NamePatterns, PatternError};

use crate::account::Account;
use crate::config::{NamedAllocator, RunConfig};
pub(super) use crate::units::{size, time};

/// Parses a time: `30s`, `5m`, `1h30m`, `500ms`, `1.5s`; a plain number is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time.is_zero() {
        return Err("the time must be more than zero".to_owned());
    }
    Ok(time)
}

/// Parses a folder, which must exist: a mistyped one would only be a folder in which nothing is found.
pub(super) fn folder(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    match path.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err("it is no folder".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a file, and after a colon the prefix of its function names.
pub(super) fn allocator(text: &str) -> Result<NamedAllocator, String> {
    const MOST: usize = 64;
    let is_name = |text: &str| {
        text.len() <= MOST
            && text
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    // A colon before a `/` or a `.` belongs to the path itself.
    let (path, prefix) = match text.rsplit_once(':') {
        Some((path, prefix)) if is_name(prefix) => (path, prefix),
        _ => (text, ""),
    };
    if path.is_empty() {
        return Err("no file given; write it as PATH or PATH:PREFIX".to_owned());
    }
    Ok(NamedAllocator {
        path: path.into(),
        prefix: prefix.to_owned(),
    })
}

/// Parses the size of the ring, and rounds it up to a power of two, as the kernel requires.
pub(super) fn ring_size(text: &str) -> Result<u32, String> {
    let bytes = size(text)?;
    let smallest = u64::from(RunConfig::MIN_RING_SIZE);
    let largest = u64::from(RunConfig::MAX_RING_SIZE);
    if !(smallest..=largest).contains(&bytes) {
        return Err("the size must be between 4KiB and 1GiB".to_owned());
    }
    u32::try_from(bytes.next_power_of_two()).map_err(|_| "that size is too large".to_owned())
}

/// Parses the memory limit of unwind tables.
pub(super) fn table_memory(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if !(RunConfig::MIN_TABLE_MEMORY..=RunConfig::MAX_TABLE_MEMORY).contains(&bytes) {
        return Err("the size must be between 4KiB and 8GiB".to_owned());
    }
    Ok(bytes)
}

/// Parses a limit of live memory: a size, and whether it is for control groups.
pub(super) fn live_limit(text: &str) -> Result<(u64, bool), String> {
    let (number, is_of_groups) = match text.rsplit_once(':') {
        Some((number, "cgroup")) => (number, true),
        Some(_) => return Err("write it as 512MiB or 512MiB:cgroup".to_owned()),
        None => (text, false),
    };
    match size(number)? {
        0 => Err("the size must be more than zero".to_owned()),
        bytes => Ok((bytes, is_of_groups)),
    }
}

/// Parses the memory limit of a run or a data file.
pub(super) fn memory(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes < RunConfig::MIN_MEMORY {
        return Err(format!(
            "the size must be at least {}MiB",
            RunConfig::MIN_MEMORY >> 20
        ));
    }
    Ok(bytes)
}

/// Parses the mean bytes between two samples.
pub(super) fn mean(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if !(1..=RunConfig::MAX_MEAN).contains(&bytes) {
        return Err("the size must be between 1 and 1024GiB".to_owned());
    }
    Ok(bytes)
}

/// Parses a pattern of process names.
pub(super) fn glob(text: &str) -> Result<String, String> {
    let mut alone = NamePatterns::NONE;
    let problem = match alone.add(text.as_bytes()) {
        Ok(()) => return Ok(text.to_owned()),
        Err(PatternError::TooLong) => {
            "the kernel keeps only 15 bytes of a process name; end a shorter pattern with *"
        }
        Err(PatternError::TooMany) => "the pattern is too long",
        Err(PatternError::Unfinished) => "a [ needs its ], and a \\ needs a character after it",
    };
    Err(problem.to_owned())
}

/// Parses a user: a name that this machine knows, or a number.
pub(super) fn user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    crate::sys::user_id(text).ok_or_else(|| "there is no user with that name".to_owned())
}

/// Parses a user that can run programs: a name or number that this machine knows.
pub(super) fn account(text: &str) -> Result<Account, String> {
    Account::find(text).ok_or_else(|| "there is no user with that name or number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every way to write a time is read.
    #[test]
    fn times_are_read() {
        let ms = Duration::from_millis;
        assert_eq!(duration("30s"), Ok(ms(30_000)));
        assert_eq!(duration("5m"), Ok(ms(300_000)));
        assert_eq!(duration("1h30m"), Ok(ms(5_400_000)));
        assert_eq!(duration("500ms"), Ok(ms(500)));
        assert_eq!(duration("1.5s"), Ok(ms(1_500)));
        assert_eq!(duration("90"), Ok(ms(90_000)));
        assert_eq!(duration("1s500ms"), Ok(ms(1_500)));
    }

    /// Check that ambiguous times are refused with a reason, and that none overflows.
    #[test]
    fn bad_times_are_refused() {
        for (text, reason) in [
            ("", "no time"),
            ("abc", "not a unit of time"),
            ("s", "not a number"),
            ("-5s", "not a unit of time"),
            ("1h30", "no unit"),
            ("30s1h", "out of order"),
            ("1h1h", "out of order"),
            ("1.2.3s", "not a number"),
            ("0", "more than zero"),
            ("0ms", "more than zero"),
            ("99999999999999999999d", "too long"),
            ("5 parsecs", "not a unit of time"),
        ] {
            let error = duration(text).unwrap_err();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    /// Check that users are found by name and number.
    #[test]
    fn users_are_read() {
        assert_eq!(user("root"), Ok(0));
        assert_eq!(user("1234"), Ok(1234));
        assert!(user("no such user").unwrap_err().contains("no user"));
    }

    /// Check that sizes are read, and that the size of a ring is rounded up to a power of two.
    #[test]
    fn ring_sizes_are_rounded_up() {
        assert_eq!(ring_size("64MiB"), Ok(64 << 20));
        assert_eq!(ring_size("512K"), Ok(512 << 10));
        assert_eq!(ring_size("4096"), Ok(4096));
        assert_eq!(ring_size("1g"), Ok(1 << 30));
        assert_eq!(ring_size("64MB"), Ok(64 << 20));
        assert_eq!(ring_size("5 KiB"), Ok(8192));
    }

    /// Check that the memory for tables has its own bounds, and is not rounded.
    #[test]
    fn table_memory_has_bounds() {
        assert_eq!(table_memory("256MiB"), Ok(RunConfig::DEFAULT_TABLE_MEMORY));
        assert_eq!(table_memory("5000"), Ok(5000));
        for text in ["4095", "9GiB", "0"] {
            let error = table_memory(text).unwrap_err();
            assert!(error.contains("between"), "{text}: {error}");
        }
    }

    /// Check that sizes out of bounds, overflows and unknown units are refused.
    #[test]
    fn bad_ring_sizes_are_refused() {
        for (text, reason) in [
            ("", "does not begin"),
            ("MiB", "does not begin"),
            ("1024", "between"),
            ("2GiB", "between"),
            ("64MiB3", "not understood"),
            ("1.5M", "not a whole number"),
            ("64 potatoes", "not a unit of size"),
            ("99999999999999999999", "not a whole number"),
            ("18446744073709551615G", "too large"),
        ] {
            let error = ring_size(text).unwrap_err();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    /// Check that a prefix follows the last colon, that a path may contain colons, and that a missing file is
    /// an error.
    #[test]
    fn allocators_are_read() {
        let read = |text: &str| {
            let named = allocator(text).unwrap();
            (named.path.display().to_string(), named.prefix)
        };
        let is = |path: &str, prefix: &str| (path.to_owned(), prefix.to_owned());
        assert_eq!(read("/opt/libx.so"), is("/opt/libx.so", ""));
        assert_eq!(read("/opt/libx.so:my_"), is("/opt/libx.so", "my_"));
        assert_eq!(read("/a:b/libx.so"), is("/a:b/libx.so", ""));
        assert_eq!(read("/a:b/libx.so:x"), is("/a:b/libx.so", "x"));
        assert!(allocator(":my_").is_err() && allocator("").is_err());
    }
}
