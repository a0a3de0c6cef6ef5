//! Reads and parses `/proc/PID/maps`, and opens mapped files.
//!
//! Part of `proc`. Must not know the contents of mapped files.

use std::fs;
use std::io;

use super::processes::threads;
use crate::open::{self, Expected, NotOpened, Opened};

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Its permissions as they are listed: `r`, `w` and `x` or `-`; `p` if it is private, `s` if it is shared.
    pub permissions: [u8; 4],
    /// Whether it is executable.
    pub executable: bool,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// Inode of the file; 0 if there is no file.
    pub inode: u64,
    /// Path of the file, a name in brackets, or empty.
    pub path: String,
}

/// Whether a mapping has no file, and the process may only read it.
pub fn is_read_only_memory(mapping: &Mapping) -> bool {
    mapping.permissions == *b"r--p" && mapping.inode == 0 && mapping.path.is_empty()
}

/// A thread of a process whose `/proc` entry shows the mappings. This is the first thread, unless it has
/// ended while others continue.
pub fn living_thread(pid: u32) -> u32 {
    let has_memory = |tid: u32| read(tid).is_ok_and(|text| !text.is_empty());
    if has_memory(pid) {
        return pid;
    }
    threads(pid)
        .unwrap_or_default()
        .into_iter()
        .find(|tid| has_memory(*tid))
        .unwrap_or(pid)
}

/// The mappings of a process, as that thread shows them.
pub fn of(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = read(living_thread(pid))?;
    Ok(parse(&text).collect())
}

/// Reads the mappings of a process.
pub fn read(pid: u32) -> io::Result<String> {
    // A path may not be UTF-8. It is only displayed, so a lossy conversion is enough.
    let bytes = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens exactly the file behind a mapping, even if its path was removed or names another file in another root folder.
pub fn open_mapped(pid: u32, mapping: &Mapping) -> Result<Opened, NotOpened> {
    let expected = Expected {
        device: mapping.device,
        inode: mapping.inode,
    };
    open::mapped(pid, mapping.start, mapping.end, Some(expected))
}

/// Parses mappings, and skips malformed lines.
pub fn parse(text: &str) -> impl Iterator<Item = Mapping> {
    text.lines().filter_map(parse_line)
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let (first, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind.trim_start_matches(' ');
        first
    };
    let (start, end) = field().split_once('-')?;
    let permissions = field();
    let offset = u64::from_str_radix(field(), 16).ok()?;
    let (major, minor) = field().split_once(':')?;
    let inode = field().parse().ok()?;
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset,
        permissions: permissions.as_bytes().try_into().ok()?,
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode,
        path: rest.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a path with blanks is complete, and that a mapping without a file has an empty path.
    #[test]
    fn lines_are_parsed() {
        let text = "7f00-7f10 r-xp 00002000 fe:1a 1234     /tmp/a b  c (deleted)\n\
                    nonsense\n\
                    8000-9000 rw-p 00000000 00:00 0 \n";
        let found: Vec<_> = parse(text).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].path, "/tmp/a b  c (deleted)");
        assert_eq!(
            (found[0].start, found[0].end, found[0].offset),
            (0x7f00, 0x7f10, 0x2000)
        );
        assert_eq!(found[0].device, (0xfe, 0x1a));
        assert!(found[0].executable && !found[1].executable);
        assert_eq!((found[1].inode, found[1].path.as_str()), (0, ""));
    }
}
