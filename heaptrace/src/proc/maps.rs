//! `/proc/PID/maps`.
//!
//! Part of `proc`. Parses text; knows nothing of what is mapped.

use std::fs;
use std::io;

use super::processes::threads;
use crate::open::{self, Expected, NotOpened, Opened};

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Whether code can run there.
    pub executable: bool,
    /// Device of the file, as `major:minor`.
    pub device: (u32, u32),
    /// Inode of the file, 0 where there is none.
    pub inode: u64,
    /// Path of the file, or a name in brackets, or nothing.
    pub path: String,
}

/// A thread of a process through which its memory can be seen: the first one, unless that has ended
/// while others go on.
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

/// Reads the mappings of a process.
pub fn read(pid: u32) -> io::Result<String> {
    // A path is bytes; what is no UTF-8 in it is only for show.
    let bytes = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens the file behind a mapping: the very one, also where its path is gone or means another file in another root.
pub fn open_mapped(pid: u32, mapping: &Mapping) -> Result<Opened, NotOpened> {
    let expected = Expected {
        device: mapping.device,
        inode: mapping.inode,
    };
    open::mapped(pid, mapping.start, mapping.end, Some(expected))
}

/// Parses mappings; lines that make no sense are left out.
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

    /// Check that a path with blanks stays whole, and that a mapping without a file has none.
    #[test]
    fn parses_lines() {
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
