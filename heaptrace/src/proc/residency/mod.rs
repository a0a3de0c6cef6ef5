//! What of a process's memory is resident, swapped or untouched: by mapping, and by page.
//!
//! Part of `proc`. The process runs on meanwhile, so what is read later may be newer. Must not know what is in the memory.

mod mapping;
mod page_map;
mod smaps;
mod stack_pointers;

use std::fs::File;
use std::io::{self, BufReader};

pub use mapping::{Mapping, MappingKind, PageState, Run};
pub(crate) use page_map::PageMap;
use smaps::Mapped;

use super::memory;

/// Most mappings of a process that are kept.
const MAX_MAPPINGS: usize = 1 << 16;

/// Most runs of pages of a process that are kept: some 8 MiB.
const MAX_RUNS: usize = 1 << 19;

/// What of a process's memory is resident.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Resident memory as the kernel counts it for the process.
    pub resident: u64,
    /// Its mappings, by address.
    pub mappings: Vec<Mapping>,
    /// Why the pages are not known, if they are not.
    pub unknown_pages: Option<String>,
    /// Mappings that found no room in the list.
    pub left_out: u64,
}

/// Reads what of a process's memory is resident.
pub fn read(pid: u32) -> io::Result<Residency> {
    let smaps = BufReader::new(File::open(format!("/proc/{pid}/smaps"))?);
    let pages = PageMap::open(pid);
    let stacks = stack_pointers::of(pid);
    let mut mapped = smaps::parse(smaps, MAX_MAPPINGS)?;
    let mut residency = Residency {
        resident: memory::resident(pid).unwrap_or_default().now,
        left_out: mapped.left_out,
        ..Residency::default()
    };
    smaps::find_kinds(&mut mapped.mappings, &stacks);
    match pages {
        Ok(mut pages) => {
            let mut room = MAX_RUNS;
            for it in &mut mapped.mappings {
                if let Err(error) = add_pages(&mut pages, it, &mut room) {
                    residency.unknown_pages = Some(why(pid, &error));
                    break;
                }
            }
        }
        Err(error) => residency.unknown_pages = Some(why(pid, &error)),
    }
    residency.mappings = mapped.mappings.into_iter().map(|it| it.mapping).collect();
    Ok(residency)
}

/// Looks at the pages of a mapping, if they are private and may hold blocks.
fn add_pages(pages: &mut PageMap, it: &mut Mapped, room: &mut usize) -> io::Result<()> {
    let mapping = &mut it.mapping;
    let may_hold_blocks = it.is_private
        && it.is_writable
        && matches!(
            mapping.kind,
            MappingKind::Anonymous | MappingKind::Heap | MappingKind::File
        );
    if !may_hold_blocks {
        return Ok(());
    }
    mapping.runs = match mapping.resident + mapping.swapped {
        0 => page_map::untouched(mapping.start, mapping.end),
        _ => pages.runs(mapping.start, mapping.end, *room)?,
    };
    match room.checked_sub(mapping.runs.len()) {
        Some(left) => *room = left,
        None => {
            return Err(io::Error::other(format!(
                "they are in more than {MAX_RUNS} pieces"
            )));
        }
    }
    Ok(())
}

fn why(pid: u32, error: &io::Error) -> String {
    format!("/proc/{pid}/pagemap can't be read: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    /// Check that the pages of this process are as it has touched them, and that sums of pages are those of the kernel.
    #[test]
    fn own_pages_are_found() {
        let page = sys::page_size();
        // Mapped for this alone: a large block of the allocator may have been used before. Writing to every second page splits it into runs.
        let pages = 10_000;
        // SAFETY: a new private mapping, which nothing else refers to, and which stays mapped.
        let memory = unsafe {
            let length = page * pages;
            let (access, how) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let at = libc::mmap(std::ptr::null_mut(), length, access, how, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(at.cast::<u8>(), length)
        };
        for at in (0..pages).step_by(2) {
            memory[at * page] = 1;
        }
        let found = read(std::process::id()).unwrap();
        assert_eq!(found.unknown_pages, None);
        assert!(found.resident > 0);
        let address = memory.as_ptr() as u64;
        let mapping = found
            .mappings
            .iter()
            .find(|it| it.start <= address && address < it.end);
        let mapping = mapping.expect("the mapping is listed");
        assert_eq!(mapping.kind, MappingKind::Anonymous);
        let mut at = mapping.start;
        let mut states = Vec::new();
        for run in &mapping.runs {
            for _ in 0..run.pages {
                if at >= address && states.len() < pages {
                    states.push(run.state);
                }
                at += page as u64;
            }
        }
        assert_eq!(at, mapping.end);
        for (at, state) in states.iter().enumerate().step_by(2) {
            assert!(state.is_resident(), "page {at}: {state:?}");
        }
        // A machine may give whole huge pages.
        if !states.contains(&PageState::Huge) {
            assert_eq!(states[1], PageState::Untouched);
        }
        let kinds = found.mappings.iter().map(|it| it.kind);
        let kinds: std::collections::BTreeSet<_> = kinds.collect();
        assert!(kinds.contains(&MappingKind::Stack) && kinds.contains(&MappingKind::File));
    }

    /// Check that a process that does not exist is an error, and not one without memory.
    #[test]
    fn a_missing_process_is_an_error() {
        assert!(read(u32::MAX >> 1).is_err());
    }
}
