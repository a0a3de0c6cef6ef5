//! The files that were scanned already, so that no file is scanned each time that a process maps it.
//!
//! Part of the session. Has limited room; when it is full, it is emptied, and the forgotten files are counted.

use std::collections::HashSet;

use crate::open::{Expected, Identity};

/// Most files that are remembered.
const MAX_SEEN: usize = 1 << 16;

/// A set of files.
pub(super) struct SeenFiles {
    files: HashSet<Identity>,
    /// The same files by the kernel's device and inode, for mappings whose file can't be opened any more.
    expected: HashSet<Expected>,
    room: usize,
    forgotten: u64,
}

impl SeenFiles {
    pub(super) fn new() -> Self {
        Self::with_room(MAX_SEEN)
    }

    fn with_room(room: usize) -> Self {
        Self {
            files: HashSet::new(),
            expected: HashSet::new(),
            room,
            forgotten: 0,
        }
    }

    /// Adds a file; returns whether it is new.
    pub(super) fn insert(&mut self, file: Identity, expected: Expected) -> bool {
        if self.files.len() >= self.room {
            self.forgotten += self.files.len() as u64;
            self.files.clear();
        }
        if self.expected.len() >= self.room {
            self.expected.clear();
        }
        let is_new = self.files.insert(file);
        if is_new {
            self.expected.insert(expected);
        }
        is_new
    }

    /// Whether a file was seen.
    pub(super) fn has(&self, file: &Identity) -> bool {
        self.files.contains(file)
    }

    /// Whether a file that the kernel names was seen.
    pub(super) fn contains(&self, expected: &Expected) -> bool {
        self.expected.contains(expected)
    }

    /// Number of files that were forgotten for want of room. They are scanned again when they are mapped again.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::FileId;

    /// Check that a full set is emptied, and that the files which it forgets are counted.
    #[test]
    fn forgotten_files_are_counted() {
        let mut seen = SeenFiles::with_room(3);
        let mut insert = |inode: u64| {
            let identity = Identity {
                file: FileId { device: 1, inode },
                version: 0,
            };
            let expected = Expected {
                device: (0, 1),
                inode,
            };
            let is_new = seen.insert(identity, expected);
            (is_new, seen.forgotten(), seen.contains(&expected))
        };
        assert_eq!(insert(1), (true, 0, true));
        assert_eq!(insert(1), (false, 0, true));
        assert_eq!(insert(2), (true, 0, true));
        assert_eq!(insert(3), (true, 0, true));
        assert_eq!(insert(4), (true, 3, true));
        assert_eq!(insert(1), (true, 3, true));
    }
}
