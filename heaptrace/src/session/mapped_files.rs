//! Mapped files that wait until they are scanned for allocators, with the process that mapped each.
//!
//! Part of the session. Has limited room, shared fairly between owners. Must not know how files are scanned.

use std::collections::HashMap;

use super::waiting::Waiting;
use crate::events::sideband::Mapped;
use crate::proc::owner::Owner;

/// Most mapped files that wait.
const MAX_WAITING: usize = 1 << 14;

/// Most processes whose owner is cached.
const MAX_OWNERS: usize = 1 << 12;

/// A queue of mapped files.
pub(super) struct MappedFiles {
    waiting: Waiting<(u32, Mapped)>,
    /// The owners of processes. The cache is short-lived: processes end, and others get their ids.
    owners: HashMap<u32, Owner>,
}

impl MappedFiles {
    pub(super) fn new() -> Self {
        Self::with_room(MAX_WAITING)
    }

    fn with_room(room: usize) -> Self {
        Self {
            waiting: Waiting::new(room),
            owners: HashMap::new(),
        }
    }

    /// Adds a file that a process has mapped.
    pub(super) fn push(&mut self, pid: u32, mapped: Mapped) {
        if self.owners.len() >= MAX_OWNERS {
            self.owners.clear();
        }
        let owner = self.owners.entry(pid).or_insert_with(|| Owner::of(pid));
        self.waiting.push(owner.clone(), (pid, mapped));
    }

    /// Takes the next file, with its owner and the process.
    pub(super) fn pop(&mut self) -> Option<(Owner, u32, Mapped)> {
        self.owners.clear();
        let (owner, (pid, mapped)) = self.waiting.pop()?;
        Some((owner, pid, mapped))
    }

    /// Number of files that were dropped for want of room.
    pub(super) fn dropped(&self) -> u64 {
        self.waiting.dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::Expected;

    /// Check that files beyond the room are counted as dropped, and that the others are handed out.
    #[test]
    fn files_without_room_are_counted() {
        let mut files = MappedFiles::with_room(3);
        for n in 0..5 {
            let mapped = Mapped {
                start: n << 12,
                end: (n + 1) << 12,
                offset: 0,
                path: format!("/lib/{n}.so"),
                file: Expected::default(),
                is_shared: false,
            };
            files.push(std::process::id(), mapped);
        }
        assert_eq!(files.dropped(), 2);
        assert_eq!(std::iter::from_fn(|| files.pop()).count(), 3);
    }
}
