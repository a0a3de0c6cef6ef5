//! The memory of a process in which pointers can be: its writable mappings, with the pages that are in memory.
//!
//! Part of `reachability`. Must not know blocks.

use std::io;

use crate::proc::maps::{self, Mapping};
use crate::proc::processes;
use crate::proc::residency::{PageMap, PageState};
use crate::sys;

/// Most runs of pages of a process.
const MAX_RUNS: usize = 1 << 20;

/// What a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceKind {
    /// Memory without a file: heaps, stacks, what the program mapped, zeroed variables.
    Anonymous,
    /// The variables of glibc, which has pointers to the ends of blocks in them.
    Glibc,
    /// Any other file, or memory that is shared.
    Other,
}

/// A writable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) kind: PlaceKind,
    /// Whether it is the stack of the first thread.
    pub(super) is_main_stack: bool,
    /// Whether memory that can't be accessed lies directly below, as below the stacks of other threads.
    pub(super) is_guarded: bool,
    /// Its pages in memory: the first address, and the one behind them.
    pub(super) runs: Vec<(u64, u64)>,
}

/// The writable mappings of a process, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    pub(super) all: Vec<Place>,
    /// Where the heap that grows by `brk` begins; 0 if there is none.
    pub(super) heap_start: u64,
    /// Bytes in swapped pages, which are not read: the process would have to wait for the disk.
    pub(super) swapped: u64,
}

impl Place {
    pub(super) fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

impl Places {
    /// Looks at a process.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let page = sys::page_size() as u64;
        let text = maps::read(maps::living_thread(pid))?;
        let mut pages = PageMap::open(pid)?;
        let mut places = Self {
            heap_start: processes::heap_start(pid).unwrap_or(0),
            ..Self::default()
        };
        let mut room = MAX_RUNS;
        let mut guard = None;
        for mapping in maps::parse(&text) {
            if mapping.permissions.starts_with(b"---") {
                guard = Some(mapping.end);
            }
            if !may_have_pointers(&mapping) {
                continue;
            }
            let mut at = mapping.start;
            let mut runs = Vec::new();
            let found = pages.runs(mapping.start, mapping.end, room)?;
            room = room.saturating_sub(found.len());
            // Before Linux 6.7, no more than a number of pages is looked at. What is not read has no pointers, so nothing could be said.
            if found.is_empty() && mapping.start < mapping.end {
                return Err(io::Error::other("it has too many pages"));
            }
            for run in found {
                let end = at + u64::from(run.pages) * page;
                match run.state {
                    PageState::Resident | PageState::Huge => runs.push((at, end)),
                    PageState::Swapped => places.swapped += end - at,
                    PageState::Untouched | PageState::Zero => {}
                }
                at = end;
            }
            places.all.push(Place {
                start: mapping.start,
                end: mapping.end,
                kind: kind(&mapping),
                is_main_stack: mapping.path == "[stack]",
                is_guarded: guard == Some(mapping.start),
                runs,
            });
        }
        Ok(places)
    }

    /// The mapping that holds an address.
    pub(super) fn holding(&self, address: u64) -> Option<usize> {
        let at = self.all.partition_point(|it| it.end <= address);
        let place = self.all.get(at)?;
        (place.start <= address).then_some(at)
    }

    /// All pages in memory, in the order of their addresses.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.all.iter().flat_map(|it| it.runs.iter().copied())
    }

    /// The bytes that are in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.runs().map(|(start, end)| end - start).sum()
    }
}

/// Devices are left out: reading them may do something.
fn may_have_pointers(mapping: &Mapping) -> bool {
    let path = mapping.path.as_str();
    let is_device = path.starts_with("/dev/")
        && !path.starts_with("/dev/shm/")
        && !path.starts_with("/dev/zero");
    let is_writable = mapping.permissions.get(1) == Some(&b'w');
    // A program can protect what it has written.
    let was_writable = mapping.inode == 0 && mapping.permissions.starts_with(b"r--");
    (is_writable || was_writable) && !is_device && !path.starts_with("[v")
}

fn kind(mapping: &Mapping) -> PlaceKind {
    let name = mapping.path.rsplit('/').next().unwrap_or_default();
    if mapping.permissions.last() == Some(&b's') {
        PlaceKind::Other
    } else if mapping.inode == 0 {
        PlaceKind::Anonymous
    } else if name.starts_with("libc.so") || name.starts_with("libc-2") {
        PlaceKind::Glibc
    } else {
        PlaceKind::Other
    }
}
