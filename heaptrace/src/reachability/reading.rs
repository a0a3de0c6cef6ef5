//! Reads the memory of a process while it is stopped, for a bounded time.
//!
//! Part of `reachability`. What is too much for that time was read before, while the process ran. Pages that changed between two
//! such readings are read again first while it is stopped, and everything is read several times more afterwards, each time in another
//! order: a block that nothing points to stays so. Must not know who allocated a block.

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use super::copy::{self, Copied, MAX_WORDS, Wanted, batches, shuffled};
use super::pages::Pages;
use super::places::{PlaceKind, Places};
use super::search::{Found, KnownBlocks, Search};
use super::stop::{self, Refusal, Registers, Stopped};
use super::words::{Filter, PAGE, Piece};
use crate::sys;

/// How long a stopped process is read at most, for each GiB of its memory, and if it has less.
const PER_GIB: Duration = Duration::from_millis(35);

/// Beyond that, the time in which events are read that had waited when the process stopped.
const FOR_EVENTS: Duration = Duration::from_millis(200);

/// The part of the longest stop, in percent, that reading must fit into if nothing is read before.
const USUAL: u32 = 60;

/// How many readings afterwards must show nothing new, one after the other, and how many are made at most.
const QUIET: u32 = 12;
const MOST_READINGS: u32 = 100;

/// A process that is about to be stopped.
#[derive(Debug)]
pub struct Prepared {
    pid: u32,
    /// The longest stop.
    limit: Duration,
    earlier: Option<Earlier>,
}

/// What was read while the process ran.
#[derive(Debug)]
struct Earlier {
    /// When reading began, on the monotonic clock.
    began: u64,
    pieces: Vec<Piece>,
    /// The pages that were read, by address.
    pages: Vec<u64>,
    /// Those that changed meanwhile.
    changed: Vec<u64>,
}

/// The memory of a process at a moment.
#[derive(Debug)]
pub struct Reading {
    pid: u32,
    places: Places,
    registers: Registers,
    pages: Pages,
    /// Blocks that were allocated before this time, on the monotonic clock, can be judged.
    judged_before: u64,
    /// How long the process was stopped.
    pub stopped: Duration,
    /// Its threads.
    pub threads: usize,
    /// Bytes of memory in which pointers can be.
    pub memory: u64,
    /// Bytes that were read while it was stopped.
    pub stopped_bytes: u64,
    /// Bytes that can't be read, or are swapped.
    pub unread: u64,
}

impl Prepared {
    /// Looks at a process while it runs, which is to be stopped for no longer than a time. If all of it can't be read then, it is read now, too.
    pub fn new(pid: u32, longest: Option<Duration>) -> Result<Self, Refusal> {
        stop::check_patiently(pid)?;
        if !copy::has_usual_pages() {
            return Err(Refusal::OtherPages);
        }
        let began = sys::monotonic_now();
        let start = Instant::now();
        let places = Places::of(pid).map_err(Refusal::not_listed)?;
        let limit = longest.unwrap_or_else(|| limit(places.bytes()));
        // They are listed while the process is stopped, too.
        if start.elapsed() > limit + FOR_EVENTS {
            return Err(Refusal::TooSlow(limit.as_millis()));
        }
        let all = batches(places.runs());
        let wanted = Wanted {
            filter: Filter::of(&places),
            hashes: true,
            ..Wanted::default()
        };
        let start = Instant::now();
        let first = copied(copy::copy(pid, all.clone(), wanted))?;
        if start.elapsed() < limit * USUAL / 100 {
            return Ok(Self {
                pid,
                limit,
                earlier: None,
            });
        }
        let wanted = Wanted {
            words: true,
            ..wanted
        };
        let second = copied(copy::copy(pid, all, wanted))?;
        let before = hashes(&first.pieces);
        let changed = hashes(&second.pieces).into_iter().filter(|(page, hash)| {
            let at = before.binary_search_by_key(page, |it| it.0);
            at.ok().and_then(|at| before.get(at)) != Some(&(*page, *hash))
        });
        let changed = changed.map(|it| it.0).collect();
        let pages = hashes(&second.pieces).into_iter().map(|it| it.0).collect();
        Ok(Self {
            pid,
            limit,
            earlier: Some(Earlier {
                began,
                pieces: second.pieces,
                pages,
                changed,
            }),
        })
    }

    /// Stops the process, and reads its memory. `stopped` gets a message as soon as it is stopped, and `events_read` must get one when
    /// all events up to then are read. Nothing else may run on this thread until it ends.
    pub fn read(
        self,
        stopped: &Sender<()>,
        events_read: &Receiver<()>,
    ) -> Result<Reading, Refusal> {
        sys::ThreadPriority::of_this_thread().raise();
        let process = Stopped::stop(self.pid)?;
        // The receiver waits for it, or the run has failed.
        let _ = stopped.send(());
        let deadline = process.since() + self.limit;
        let registers = process.registers();
        let places = Places::of(self.pid).map_err(Refusal::not_listed)?;
        let filter = Filter::of(&places);
        let order = order(&places, &registers, self.earlier.as_ref());
        let wanted = Wanted {
            filter,
            words: true,
            hashes: false,
            deadline: Some(deadline),
        };
        let copied = copy::copy(self.pid, batches(order), wanted);
        let left = deadline + FOR_EVENTS;
        let events = events_read.recv_timeout(left.saturating_duration_since(Instant::now()));
        let (since, threads) = (process.since(), process.threads());
        drop(process);
        let stopped = since.elapsed();
        let Copied {
            pieces,
            bytes,
            failed,
            is_whole,
            is_full,
            // It is not whole then.
            is_stuck: _,
        } = copied;
        if is_full {
            return Err(Refusal::TooManyWords(MAX_WORDS));
        }
        let (judged_before, mut all) = match self.earlier {
            Some(earlier) if !is_whole => (earlier.began, earlier.pieces),
            Some(_) | None => (u64::MAX, Vec::new()),
        };
        if events.is_err() || (!is_whole && all.is_empty()) {
            return Err(Refusal::TooSlow(self.limit.as_millis()));
        }
        all.extend(pieces);
        Ok(Reading {
            pid: self.pid,
            registers,
            pages: Pages::new(all),
            judged_before,
            stopped,
            threads,
            memory: places.bytes(),
            stopped_bytes: bytes,
            unread: failed * PAGE + places.swapped,
            places,
        })
    }
}

impl Reading {
    /// Whether all memory was read while the process was stopped.
    pub fn is_whole(&self) -> bool {
        self.judged_before == u64::MAX
    }

    /// Finds the blocks that nothing points to.
    pub fn find(&self, known: &KnownBlocks) -> Result<Found, Refusal> {
        let mut search = Search::new(&self.places, known, &self.registers, self.judged_before);
        search.follow(&self.pages);
        let readings = match self.is_whole() {
            true => 0,
            false => self.read_again(&mut search)?,
        };
        Ok(Found {
            readings,
            ..search.finish(&self.pages, self.judged_before)
        })
    }

    /// Reads the memory again and again while the process runs, until that shows no more pointers to blocks that seemed to have none: one that a
    /// program has moved while memory was read can be missed, but not each time. Returns how often it was read.
    fn read_again(&self, search: &mut Search<'_>) -> Result<u32, Refusal> {
        let mut quiet = 0;
        for readings in 0..MOST_READINGS {
            let Some((start, end)) = search.unreached() else {
                return Ok(readings);
            };
            if quiet == QUIET {
                return Ok(readings);
            }
            let places = Places::of(self.pid).map_err(Refusal::not_listed)?;
            let wanted = Wanted {
                filter: Filter::between(start, end),
                words: true,
                ..Wanted::default()
            };
            let order = shuffled(batches(places.runs()));
            let later = copied(copy::copy(self.pid, order, wanted))?;
            if later.bytes == 0 {
                return Err(Refusal::Ended);
            }
            let has_more = search.follow_later(&places, &Pages::new(later.pieces), &self.pages);
            quiet = if has_more { 0 } else { quiet + 1 };
        }
        Err(Refusal::Restless(MOST_READINGS))
    }
}

/// What was read without a deadline, if that ended well.
fn copied(copied: Copied) -> Result<Copied, Refusal> {
    if copied.is_stuck {
        return Err(Refusal::Stuck);
    }
    match copied.is_full {
        true => Err(Refusal::TooManyWords(MAX_WORDS)),
        false => Ok(copied),
    }
}

/// How long a process with so much memory may be stopped.
fn limit(bytes: u64) -> Duration {
    let gib = bytes as f64 / (1_u64 << 30) as f64;
    PER_GIB.mul_f64(gib.max(1.0))
}

/// The pages of some pieces with the numbers of their contents, by address.
fn hashes(pieces: &[Piece]) -> Vec<(u64, u64)> {
    let pairs = pieces.iter().flat_map(|it| it.pages.iter().zip(&it.hashes));
    let mut pairs: Vec<_> = pairs.map(|(page, hash)| (*page, *hash)).collect();
    pairs.sort_unstable();
    pairs
}

/// What is read of a stopped process, in this order: pages that are new or changed, then variables and stacks, then the rest.
fn order(places: &Places, registers: &Registers, earlier: Option<&Earlier>) -> Vec<(u64, u64)> {
    let Some(earlier) = earlier else {
        return places.runs().collect();
    };
    let mut order: Vec<(u64, u64)> = Vec::new();
    let mut rest = Vec::new();
    let mut later = Vec::new();
    let mut known = earlier.pages.iter().copied().peekable();
    let mut changed = earlier.changed.iter().copied().peekable();
    for place in &places.all {
        let is_root = place.kind != PlaceKind::Anonymous
            || registers.stacks.iter().any(|it| place.contains(it.lowest));
        for (start, end) in &place.runs {
            let mut at = *start;
            while at < *end {
                while known.next_if(|it| *it < at).is_some() {}
                while changed.next_if(|it| *it < at).is_some() {}
                let is_known = known.peek() == Some(&at) && changed.peek() != Some(&at);
                let list = match (is_known, is_root) {
                    (false, _) => &mut order,
                    (true, true) => &mut later,
                    (true, false) => &mut rest,
                };
                match list.last_mut() {
                    Some(last) if last.1 == at => last.1 += PAGE,
                    _ => list.push((at, at + PAGE)),
                }
                at += PAGE;
            }
        }
    }
    order.append(&mut later);
    order.append(&mut rest);
    order
}
