//! Reads the states of pages from `/proc/PID/pagemap`.
//!
//! Part of `proc`. From Linux 6.7 on, the kernel finds runs of pages itself (`PAGEMAP_SCAN`). Before that, the file has a word for
//! each page, which does not say what is huge or zero.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use super::mapping::{PageState, Run};
use crate::sys;

/// Most runs that the kernel gives in one call.
const REGIONS: usize = 4096;

/// Most words of the file that are read at once.
const WORDS: usize = 1 << 15;

/// The states of the pages of a process.
#[derive(Debug)]
pub(crate) struct PageMap {
    file: File,
    page: u64,
    /// Whether the kernel finds runs.
    can_scan: bool,
    /// Words that may still be read.
    words: u64,
}

/// The request `PAGEMAP_SCAN` (linux/fs.h): `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = (3 << 30)
    | ((size_of::<ScanArguments>() as libc::c_ulong) << 16)
    | ((b'f' as libc::c_ulong) << 8)
    | 16;

const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Most pages of a process whose words are read, where the kernel does not find runs: 256 GiB of addresses, half a GiB of words.
const MAX_WORDS: u64 = 1 << 26;

impl PageMap {
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        Ok(Self {
            file: File::open(format!("/proc/{pid}/pagemap"))?,
            page: sys::page_size() as u64,
            can_scan: true,
            words: MAX_WORDS,
        })
    }

    /// The runs of pages between two addresses, without a gap; none if there are too many pages to look at. Many more runs than `most` are
    /// an error.
    pub(crate) fn runs(&mut self, start: u64, end: u64, most: usize) -> io::Result<Vec<Run>> {
        let mut runs = Runs::new(start, self.page);
        if self.can_scan {
            match self.scan(start, end, most, &mut runs) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.can_scan = false,
                result => {
                    result?;
                    return Ok(runs.until(end));
                }
            }
        }
        match self.words.checked_sub((end - start) / self.page) {
            Some(left) => self.words = left,
            None => return Ok(Vec::new()),
        }
        self.read_words(start, end, most, &mut runs)?;
        Ok(runs.until(end))
    }

    fn scan(&self, start: u64, end: u64, most: usize, runs: &mut Runs) -> io::Result<()> {
        let mut regions = vec![Region::default(); REGIONS];
        let mut at = start;
        while at < end {
            let mut arguments = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                start: at,
                end,
                vec: regions.as_mut_ptr() as u64,
                vec_len: regions.len() as u64,
                category_anyof_mask: PRESENT | SWAPPED,
                return_mask: PRESENT | SWAPPED | ZERO | HUGE,
                ..ScanArguments::default()
            };
            // SAFETY: the arguments have their size, and the kernel writes at most `vec_len` regions to `vec`, which has room for
            // as many and lives until after the call.
            let found =
                unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
            if found < 0 {
                return Err(io::Error::last_os_error());
            }
            for it in regions.iter().take(found as usize) {
                runs.add(it.start, it.end, state_of(it.categories));
            }
            runs.check(most)?;
            // The call ends early if the list is full.
            if arguments.walk_end <= at {
                break;
            }
            at = arguments.walk_end;
        }
        Ok(())
    }

    fn read_words(&self, start: u64, end: u64, most: usize, runs: &mut Runs) -> io::Result<()> {
        let mut buffer = vec![0; WORDS * 8];
        let mut at = start;
        while at < end {
            let wanted = ((end - at) / self.page).min(WORDS as u64) as usize * 8;
            let read = self
                .file
                .read_at(&mut buffer[..wanted], at / self.page * 8)?;
            // The end of the file: there is no such memory.
            if read < 8 {
                break;
            }
            for word in buffer[..read].chunks_exact(8) {
                let word = word.first_chunk().map_or(0, |it| u64::from_ne_bytes(*it));
                runs.add(at, at + self.page, state_of_word(word));
                at += self.page;
            }
            runs.check(most)?;
        }
        Ok(())
    }
}

/// All pages between two addresses as one run, or as few as can be.
pub(super) fn untouched(start: u64, end: u64) -> Vec<Run> {
    Runs::new(start, sys::page_size() as u64).until(end)
}

fn state_of(categories: u64) -> PageState {
    if categories & SWAPPED != 0 {
        PageState::Swapped
    } else if categories & PRESENT == 0 {
        PageState::Untouched
    } else if categories & ZERO != 0 {
        PageState::Zero
    } else if categories & HUGE != 0 {
        PageState::Huge
    } else {
        PageState::Resident
    }
}

/// The state that a word of the file stands for.
fn state_of_word(word: u64) -> PageState {
    if word >> 63 & 1 != 0 {
        PageState::Resident
    } else if word >> 62 & 1 != 0 {
        PageState::Swapped
    } else {
        PageState::Untouched
    }
}

/// Runs under construction.
struct Runs {
    at: u64,
    page: u64,
    runs: Vec<Run>,
}

impl Runs {
    fn check(&self, most: usize) -> io::Result<()> {
        match self.runs.len() > most {
            true => Err(io::Error::other("they are in too many pieces")),
            false => Ok(()),
        }
    }

    fn new(start: u64, page: u64) -> Self {
        Self {
            at: start,
            page,
            runs: Vec::new(),
        }
    }

    /// Adds pages that follow the ones before; those between are untouched.
    fn add(&mut self, start: u64, end: u64, state: PageState) {
        if start > self.at {
            self.push((start - self.at) / self.page, PageState::Untouched);
        }
        let start = start.max(self.at);
        self.push(end.saturating_sub(start) / self.page, state);
        self.at = self.at.max(end);
    }

    fn push(&mut self, mut pages: u64, state: PageState) {
        if let Some(last) = self.runs.last_mut()
            && last.state == state
        {
            let more = pages.min(u64::from(u32::MAX - last.pages));
            last.pages += more as u32;
            pages -= more;
        }
        while pages > 0 {
            let some = pages.min(u64::from(u32::MAX));
            self.runs.push(Run {
                pages: some as u32,
                state,
            });
            pages -= some;
        }
    }

    /// The runs up to an address.
    fn until(mut self, end: u64) -> Vec<Run> {
        if end > self.at {
            self.push((end - self.at) / self.page, PageState::Untouched);
        }
        self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the kernel's runs and those of single words agree, except for what words don't tell.
    #[test]
    fn both_ways_agree() {
        let page = sys::page_size();
        let mut memory = vec![0_u8; page * 300];
        for at in (0..200).step_by(3) {
            memory[at * page] = 1;
        }
        let start = (memory.as_ptr() as u64).next_multiple_of(page as u64);
        let end = start + 290 * page as u64;
        let states = |can_scan| {
            let mut map = PageMap::open(std::process::id()).unwrap();
            map.can_scan = can_scan;
            let runs = map.runs(start, end, usize::MAX).unwrap();
            let of_run = |it: Run| std::iter::repeat_n(it.state, it.pages as usize);
            runs.into_iter().flat_map(of_run).collect::<Vec<_>>()
        };
        let (by_words, by_kernel) = (states(false), states(true));
        assert_eq!(by_words.len(), 290);
        assert!(by_words.contains(&PageState::Resident));
        for (word, found) in by_words.iter().zip(&by_kernel) {
            let without_more = match found {
                PageState::Huge | PageState::Zero => PageState::Resident,
                other => *other,
            };
            assert_eq!(*word, without_more);
        }
    }

    /// Check that gaps are untouched, that equal neighbours are one run, and that no run has more pages than fit.
    #[test]
    fn runs_have_no_gaps() {
        let mut runs = Runs::new(0x1000, 0x1000);
        runs.add(0x3000, 0x4000, PageState::Resident);
        runs.add(0x4000, 0x5000, PageState::Resident);
        runs.add(0x5000, 0x6000, PageState::Swapped);
        let found = runs.until(0x8000 + (0x1000 << 33));
        let found: Vec<_> = found.iter().map(|it| (it.pages, it.state)).collect();
        assert_eq!(
            found[..3],
            [
                (2, PageState::Untouched),
                (2, PageState::Resident),
                (1, PageState::Swapped)
            ]
        );
        let rest: u64 = found[3..].iter().map(|it| u64::from(it.0)).sum();
        assert_eq!(rest, 2 + (1 << 33));
        assert_eq!(state_of_word(1 << 62), PageState::Swapped);
        assert_eq!(state_of_word(0), PageState::Untouched);
    }
}
