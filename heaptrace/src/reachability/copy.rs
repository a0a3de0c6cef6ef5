//! Reads the memory of a process by several threads.
//!
//! Part of `reachability`. Several threads read, because the process may be stopped meanwhile. A thread whose reading does not end, because a page
//! fault waits for another program, is given up. Must not know blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::words::{Filter, PAGE, PAGE_WORDS, Piece};
use crate::sys::{self, ThreadPriority};

/// Pages that are read at once. They stay in the cache until they are looked through.
const BATCH_PAGES: usize = 64;

/// Most threads that read.
const MAX_WORKERS: usize = 8;

/// Most threads that read or were given up, in this process.
const MAX_READERS: usize = 64;

/// How long a thread may take for a batch: until it is given up, and beyond a deadline.
const PATIENCE: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_millis(100);

/// The threads that read, with those that were given up and have not ended yet.
static READERS: AtomicUsize = AtomicUsize::new(0);

/// Most words that are kept.
pub(super) const MAX_WORDS: usize = 1 << 27;

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
    /// Whether a thread was given up, because its reading did not end.
    pub(super) is_stuck: bool,
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

/// The same batches in another order, which no program can know.
pub(super) fn shuffled(mut batches: Vec<Batch>) -> Vec<Batch> {
    let mut state = sys::monotonic_now() | 1;
    for last in (1..batches.len()).rev() {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        batches.swap(last, (state % (last as u64 + 1)) as usize);
    }
    batches
}

/// Reads from the memory of a process into a buffer that is large enough, and returns how many bytes it read.
pub(super) type ReadMemory = fn(u32, &[(u64, u64)], &mut [u64]) -> usize;

/// The state that the threads share.
struct Shared {
    pid: u32,
    batches: Vec<Batch>,
    wanted: Wanted,
    read_memory: ReadMemory,
    next: AtomicUsize,
    words: AtomicUsize,
    is_late: AtomicBool,
}

/// Counts a thread that reads.
struct Reader;

impl Reader {
    /// `None` if there are too many.
    fn new() -> Option<Self> {
        let before = READERS.fetch_add(1, Ordering::Relaxed);
        let reader = Self;
        (before < MAX_READERS).then_some(reader)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads batches, in their order.
pub(super) fn copy(pid: u32, batches: Vec<Batch>, wanted: Wanted) -> Copied {
    copy_by(read_vector, pid, batches, wanted)
}

/// The same, by a function.
pub(super) fn copy_by(
    read_memory: ReadMemory,
    pid: u32,
    batches: Vec<Batch>,
    wanted: Wanted,
) -> Copied {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = processors.min(MAX_WORKERS).min(batches.len());
    let shared = Arc::new(Shared {
        pid,
        batches,
        wanted,
        read_memory,
        next: AtomicUsize::new(0),
        words: AtomicUsize::new(0),
        is_late: AtomicBool::new(false),
    });
    let (sender, receiver) = mpsc::channel();
    let mut started = 0;
    for _ in 0..workers {
        let Some(reader) = Reader::new() else { break };
        let (shared, sender) = (Arc::clone(&shared), sender.clone());
        let thread = std::thread::Builder::new().name("heaptrace-read".to_owned());
        // With fewer threads it takes longer, which the deadline limits.
        let thread = thread.spawn(move || {
            let _reader = reader;
            // The process waits only then.
            if shared.wanted.deadline.is_some() {
                ThreadPriority::of_this_thread().raise();
            }
            // No one waits for a thread that was given up.
            let _ = sender.send(work(&shared));
        });
        started += usize::from(thread.is_ok());
    }
    let mut copied = Copied::default();
    for _ in 0..started {
        match wait(&receiver, &shared) {
            Some(mut own) => {
                copied.pieces.append(&mut own.pieces);
                copied.bytes += own.bytes;
                copied.failed += own.failed;
            }
            None => {
                copied.is_stuck = true;
                // Those that go on read nothing more.
                shared.next.store(shared.batches.len(), Ordering::Relaxed);
                break;
            }
        }
    }
    copied.is_full = shared.words.load(Ordering::Relaxed) > MAX_WORDS;
    let has_readers = started > 0 || workers == 0;
    copied.is_stuck |= !has_readers;
    copied.is_whole =
        !shared.is_late.load(Ordering::Relaxed) && !copied.is_full && !copied.is_stuck;
    copied
}

/// What the next thread has read that ends; `None` if none does.
fn wait(receiver: &mpsc::Receiver<Copied>, shared: &Shared) -> Option<Copied> {
    loop {
        let begun = shared.next.load(Ordering::Relaxed);
        let patience = match shared.wanted.deadline {
            Some(deadline) => (deadline + GRACE).saturating_duration_since(Instant::now()),
            None => PATIENCE,
        };
        match receiver.recv_timeout(patience) {
            Ok(own) => return Some(own),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                let has_progress = shared.next.load(Ordering::Relaxed) != begun;
                if shared.wanted.deadline.is_some() || !has_progress {
                    return None;
                }
            }
        }
    }
}

fn work(shared: &Shared) -> Copied {
    let wanted = &shared.wanted;
    let mut buffer = vec![0_u64; BATCH_PAGES * PAGE_WORDS];
    let mut own = Copied::default();
    while let Some(batch) = shared
        .batches
        .get(shared.next.fetch_add(1, Ordering::Relaxed))
    {
        if shared.words.load(Ordering::Relaxed) > MAX_WORDS {
            break;
        }
        let deadline = wanted.deadline;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            shared.is_late.store(true, Ordering::Relaxed);
            break;
        }
        let mut piece = Piece::default();
        read(shared, batch, &mut buffer, &mut own, |address, page| {
            let filter = wanted.words.then_some(&wanted.filter);
            piece.add(address, page, filter, wanted.hashes);
        });
        shared.words.fetch_add(piece.count(), Ordering::Relaxed);
        own.pieces.push(piece);
    }
    own
}

/// Reads a batch, and hands out each page.
fn read(
    shared: &Shared,
    batch: &[(u64, u64)],
    buffer: &mut [u64],
    copied: &mut Copied,
    mut page_read: impl FnMut(u64, &[u64; PAGE_WORDS]),
) {
    let mut left = batch.to_vec();
    while !left.is_empty() {
        let bytes = (shared.read_memory)(shared.pid, &left, buffer);
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

/// Whether memory can be read in pages of this machine.
pub(super) fn has_usual_pages() -> bool {
    sys::page_size() as u64 == PAGE
}
