//! Copies the words of a process's memory that may be addresses of blocks.
//!
//! Part of `reachability`. Several threads read, because the process may be stopped meanwhile. Must not know blocks.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use super::places::{PlaceKind, Places};
use crate::sys::{self, ThreadPriority};

/// Words of a page. The kernel program is only for machines with such pages.
pub(super) const PAGE_WORDS: usize = 512;

/// Bytes of a page.
pub(super) const PAGE: u64 = PAGE_WORDS as u64 * 8;

/// Pages that are read at once. They stay in the cache until they are looked through.
const BATCH_PAGES: usize = 64;

/// Most threads that read.
const MAX_WORKERS: usize = 8;

/// Most words that are kept.
pub(super) const MAX_WORDS: usize = 1 << 27;

/// Words that are looked at together.
const GROUP: usize = 8;

/// The addresses that blocks can have: two ranges, because one heap is often far from the others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filter {
    first: [u64; 2],
    length: [u64; 2],
}

impl Filter {
    /// The addresses of memory without a file, and what lies near: it may grow.
    pub(super) fn of(places: &Places) -> Self {
        const UPPER: u64 = 0x7000_0000_0000;
        const NEAR: u64 = 1 << 36;
        let mut filter = Self::default();
        let anonymous = places
            .all
            .iter()
            .filter(|it| it.kind == PlaceKind::Anonymous);
        for place in anonymous {
            let half = usize::from(place.start >= UPPER);
            let [start, end] = match half {
                0 => [place.start, place.end.saturating_add(NEAR)],
                _ => [
                    place.start.saturating_sub(NEAR),
                    place.end.saturating_add(NEAR),
                ],
            };
            let (first, length) = (&mut filter.first[half], &mut filter.length[half]);
            let old_end = first.saturating_add(*length);
            if *length == 0 {
                (*first, *length) = (start, end - start);
            } else {
                *first = start.min(*first);
                *length = end.max(old_end) - *first;
            }
        }
        filter
    }

    #[inline(always)]
    fn has(&self, word: u64) -> bool {
        let is_in = |half: usize| word.wrapping_sub(self.first[half]) < self.length[half];
        // Both are computed, so that no branch depends on the word.
        is_in(0) | is_in(1)
    }
}

/// Some pages, with their words that may be addresses.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// The addresses of the pages.
    pub(super) pages: Vec<u64>,
    /// How many words are kept of the pages up to each one, with it.
    ends: Vec<u32>,
    /// Where each word is in its page, as a number of words.
    places: Vec<u16>,
    words: Vec<u64>,
    /// A number for the contents of each page, if that was asked for.
    pub(super) hashes: Vec<u64>,
}

impl Piece {
    /// The words of a page that lie between two addresses, with the addresses at which they are.
    pub(super) fn words(
        &self,
        index: usize,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, u64)> + '_ {
        let page = self.pages.get(index).copied().unwrap_or(0);
        let to = self.ends.get(index).map_or(0, |it| *it as usize);
        let from = match index.checked_sub(1) {
            Some(before) => self.ends.get(before).map_or(0, |it| *it as usize),
            None => 0,
        };
        let places = self.places.get(from..to).unwrap_or_default();
        let words = self.words.get(from..to).unwrap_or_default();
        let address = move |place: u16| page + u64::from(place) * 8;
        let skipped = places.partition_point(|it| address(*it) < start);
        let pairs = places.iter().zip(words).skip(skipped);
        pairs
            .map(move |(place, word)| (address(*place), *word))
            .take_while(move |(at, _)| at.saturating_add(8) <= end)
    }
}

/// What is read, and until when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    pub(super) filter: Filter,
    /// Whether words are kept.
    pub(super) words: bool,
    /// Whether pages get a number for their contents.
    pub(super) hashes: bool,
    /// When reading ends, whatever is read by then.
    pub(super) deadline: Option<Instant>,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Copied {
    pub(super) pieces: Vec<Piece>,
    /// Bytes that were read.
    pub(super) bytes: u64,
    /// Pages that can't be read: they are gone, or belong to a device.
    pub(super) failed: u64,
    /// Whether all pages were read before the deadline.
    pub(super) is_whole: bool,
    /// Whether there were too many words.
    pub(super) is_full: bool,
}

/// Pages that are read at once.
type Batch = Vec<(u64, u64)>;

/// The pages of some runs, in their order, in batches.
pub(super) fn batches(runs: impl IntoIterator<Item = (u64, u64)>) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut batch = Batch::new();
    let mut room = BATCH_PAGES as u64 * PAGE;
    for (mut start, end) in runs {
        while start < end {
            let length = room.min(end - start);
            batch.push((start, start + length));
            start += length;
            room -= length;
            if room == 0 {
                batches.push(std::mem::take(&mut batch));
                room = BATCH_PAGES as u64 * PAGE;
            }
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

/// The state that the threads share.
struct Shared<'a> {
    pid: u32,
    batches: &'a [Batch],
    wanted: Wanted,
    next: AtomicUsize,
    words: AtomicUsize,
    is_late: AtomicBool,
    copied: Mutex<Copied>,
}

/// Reads batches, in their order.
pub(super) fn copy(pid: u32, batches: &[Batch], wanted: Wanted) -> Copied {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = processors.min(MAX_WORKERS).min(batches.len());
    let shared = Shared {
        pid,
        batches,
        wanted,
        next: AtomicUsize::new(0),
        words: AtomicUsize::new(0),
        is_late: AtomicBool::new(false),
        copied: Mutex::new(Copied::default()),
    };
    std::thread::scope(|scope| {
        for _ in 1..workers {
            // With fewer threads it takes longer, which the deadline limits.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || {
                // The process waits only then.
                if shared.wanted.deadline.is_some() {
                    ThreadPriority::of_this_thread().raise();
                }
                work(&shared);
            });
        }
        work(&shared);
    });
    let mut copied = shared
        .copied
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    copied.is_full = shared.words.into_inner() > MAX_WORDS;
    copied.is_whole = !shared.is_late.into_inner() && !copied.is_full;
    copied
}

fn work(shared: &Shared<'_>) {
    let mut buffer = vec![0_u64; BATCH_PAGES * PAGE_WORDS];
    let mut own = Copied::default();
    while let Some(batch) = shared
        .batches
        .get(shared.next.fetch_add(1, Ordering::Relaxed))
    {
        if shared.words.load(Ordering::Relaxed) > MAX_WORDS {
            break;
        }
        let deadline = shared.wanted.deadline;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            shared.is_late.store(true, Ordering::Relaxed);
            break;
        }
        let mut piece = Piece::default();
        read(shared.pid, batch, &mut buffer, &mut own, |address, page| {
            piece.pages.push(address);
            if shared.wanted.words {
                scan(&shared.wanted.filter, page, &mut piece);
            }
            piece.ends.push(piece.words.len() as u32);
            if shared.wanted.hashes {
                piece.hashes.push(hash(page));
            }
        });
        shared.words.fetch_add(piece.words.len(), Ordering::Relaxed);
        own.pieces.push(piece);
    }
    let mut copied = shared.copied.lock().unwrap_or_else(PoisonError::into_inner);
    copied.pieces.append(&mut own.pieces);
    copied.bytes += own.bytes;
    copied.failed += own.failed;
}

/// Reads a batch, and hands out each page.
fn read(
    pid: u32,
    batch: &[(u64, u64)],
    buffer: &mut [u64],
    copied: &mut Copied,
    mut page_read: impl FnMut(u64, &[u64; PAGE_WORDS]),
) {
    let mut left = batch.to_vec();
    while !left.is_empty() {
        let bytes = read_vector(pid, &left, buffer);
        let mut pages = buffer.as_chunks::<PAGE_WORDS>().0.iter();
        let mut whole = bytes as u64 / PAGE;
        copied.bytes += whole * PAGE;
        let mut rest = Vec::new();
        for (start, end) in left {
            let mut at = start;
            while at < end && whole > 0 {
                if let Some(page) = pages.next() {
                    page_read(at, page);
                }
                at += PAGE;
                whole -= 1;
            }
            if at < end {
                rest.push((at, end));
            }
        }
        // The first page that was not read can't be.
        if let Some(first) = rest.first_mut() {
            copied.failed += 1;
            first.0 += PAGE;
        }
        rest.retain(|(start, end)| start < end);
        left = rest;
    }
}

/// Reads from a process's memory into a buffer that is large enough. Returns how many bytes were read.
fn read_vector(pid: u32, ranges: &[(u64, u64)], buffer: &mut [u64]) -> usize {
    let length: u64 = ranges.iter().map(|(start, end)| end - start).sum();
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: size_of_val(buffer).min(length as usize),
    };
    let remote: Vec<_> = ranges
        .iter()
        .map(|(start, end)| libc::iovec {
            iov_base: *start as *mut libc::c_void,
            iov_len: (end - start) as usize,
        })
        .collect();
    // SAFETY: the kernel writes at most `iov_len` bytes to the buffer, which is as long, and lives until after the call. The other
    // addresses are those of another process.
    let read = unsafe {
        libc::process_vm_readv(
            pid as libc::pid_t,
            &raw const local,
            1,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(read).unwrap_or(0)
}

/// Keeps the words of a page that may be addresses.
fn scan(filter: &Filter, page: &[u64; PAGE_WORDS], piece: &mut Piece) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has these instructions.
        return unsafe { scan_avx2(filter, page, piece) };
    }
    scan_any(filter, page, piece);
}

/// The same as [`scan_any`], compiled for wide registers: the process may be stopped meanwhile.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn scan_avx2(filter: &Filter, page: &[u64; PAGE_WORDS], piece: &mut Piece) {
    scan_any(filter, page, piece);
}

#[inline(always)]
fn scan_any(filter: &Filter, page: &[u64; PAGE_WORDS], piece: &mut Piece) {
    let groups = page.as_chunks::<GROUP>().0;
    for (at, group) in groups.iter().enumerate() {
        let has_any = group
            .iter()
            .fold(false, |has_any, word| has_any | filter.has(*word));
        if !has_any {
            continue;
        }
        for (place, word) in group.iter().enumerate() {
            if filter.has(*word) {
                piece.places.push((at * GROUP + place) as u16);
                piece.words.push(*word);
            }
        }
    }
}

/// A number that changes with the contents of a page.
fn hash(page: &[u64; PAGE_WORDS]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [1_u64, 2, 3, 4];
    for group in page.as_chunks::<4>().0 {
        for (lane, word) in lanes.iter_mut().zip(group) {
            *lane = (lane.rotate_left(23) ^ word).wrapping_mul(FACTOR);
        }
    }
    lanes
        .iter()
        .fold(0, |sum, lane| (sum ^ lane).wrapping_mul(FACTOR))
}

/// Whether memory can be read in pages of this machine.
pub(super) fn has_usual_pages() -> bool {
    sys::page_size() as u64 == PAGE
}
