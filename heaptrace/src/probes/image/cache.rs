//! Finds libraries in the dynamic loader's cache, `/etc/ld.so.cache`.
//!
//! Stage: probes. The file belongs to root, but it is parsed with bounds checks all the same.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::open;

/// Largest cache file; a large system has 300 kB.
const MAX_BYTES: u64 = 16 << 20;

/// First bytes of the format that glibc uses since 2.2.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";

/// Bytes before the entries.
const HEAD: usize = 48;

/// Bytes of an entry.
const ENTRY: usize = 24;

/// Flags of an entry for a 64-bit library of this architecture.
const X86_64_LIBRARY: u32 = 0x0303;

/// The content of the cache file.
#[derive(Debug, Default)]
pub(super) struct Cache {
    bytes: Vec<u8>,
    /// Offset of the newer format; older files have a part for another loader before it.
    start: usize,
}

impl Cache {
    /// Reads the file. Empty if there is none.
    pub(super) fn read(path: &Path) -> Self {
        let mut bytes = Vec::new();
        let read = open::named(path).ok().and_then(|opened| {
            let mut file = opened.file.take(MAX_BYTES);
            file.read_to_end(&mut bytes).ok()
        });
        match read {
            Some(_) => Self::from(bytes),
            None => Self::default(),
        }
    }

    fn from(bytes: Vec<u8>) -> Self {
        let start = bytes.windows(MAGIC.len()).position(|at| at == MAGIC);
        match start {
            Some(start) => Self { bytes, start },
            None => Self::default(),
        }
    }

    /// Finds the path of a library.
    pub(super) fn find(&self, name: &Path) -> Option<PathBuf> {
        let list = self.bytes.get(self.start..)?;
        let count = number(list, MAGIC.len())? as usize;
        let entries = list.get(HEAD..)?.chunks_exact(ENTRY).take(count);
        for entry in entries {
            let (flags, key, value) = (number(entry, 0)?, number(entry, 4)?, number(entry, 8)?);
            // Entries for processors with more instructions have other last eight bytes.
            let is_plain = entry.get(16..) == Some(&[0; 8]);
            if flags == X86_64_LIBRARY
                && is_plain
                && text(list, key) == Some(name.as_os_str().as_bytes())
            {
                return Some(Path::new(OsStr::from_bytes(text(list, value)?)).to_owned());
            }
        }
        None
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

fn text(list: &[u8], at: u32) -> Option<&[u8]> {
    let bytes = list.get(at as usize..)?;
    bytes.split(|byte| *byte == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(flags: u32, name: &str, path: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(1_u32.to_le_bytes());
        bytes.resize(HEAD, 0);
        let strings = (HEAD + ENTRY) as u32;
        for number in [flags, strings, strings + name.len() as u32 + 1, 0, 0, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(format!("{name}\0{path}\0").bytes());
        bytes
    }

    /// Check that a library is found by its name, also behind an older list, and that other kinds of libraries are not.
    #[test]
    fn libraries_are_found() {
        let right = list(X86_64_LIBRARY, "libx.so.1", "/opt/libx.so.1");
        let found = |bytes: Vec<u8>| Cache::from(bytes).find(Path::new("libx.so.1"));
        assert_eq!(found(right.clone()), Some("/opt/libx.so.1".into()));
        let behind = [b"ld.so-1.7.0\0\0\0\0\0".as_slice(), &right].concat();
        assert_eq!(found(behind), Some("/opt/libx.so.1".into()));
        assert_eq!(found(list(0x0003, "libx.so.1", "/opt/libx.so.1")), None);
        for end in 0..right.len() {
            let _ = found(right[..end].to_vec());
        }
    }

    /// Check that this machine's own cache has its C library.
    #[test]
    fn this_machines_c_library_is_found() {
        let cache = Cache::read(Path::new("/etc/ld.so.cache"));
        assert!(cache.find(Path::new("libc.so.6")).unwrap().is_file());
    }
}
