//! Looks for blocks that nothing points to, in runs that want that: at marks, and at the end.
//!
//! Part of the session. A process is stopped only for as long as it takes to read its memory, and to join the events of the time before.
//! Must not know how the memory is searched.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use super::drain::Drain;
use crate::config::RunConfig;
use crate::join::{Joiner, Reachability, RunningImage};
use crate::reachability::{Found, KnownBlocks, Prepared, Reading, Refusal};

/// Most processes that are searched at a time: those with most blocks.
const MAX_PROCESSES: usize = 16;

/// How often a process is stopped if the machine is too busy to read its memory in time.
const ATTEMPTS: usize = 6;

/// A process with so much memory is stopped once: more attempts would take long.
const LARGE: u64 = 256 << 20;

/// How the searches of a run are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Searches {
    /// Whether every allocation is recorded.
    is_exact: bool,
    /// How long a process may be stopped; `None`: by its memory.
    longest: Option<Duration>,
}

impl Searches {
    /// Those that a run is to make; `None` if it makes none.
    pub(super) fn wanted(config: &RunConfig) -> Option<Self> {
        config.reachable.then(|| Self {
            is_exact: !config.sampling.is_partial(),
            longest: config.max_stop,
        })
    }

    /// Looks for blocks that nothing points to. Events are joined meanwhile.
    pub(super) fn search(
        self,
        drain: &mut Drain,
        joiner: &mut Joiner,
        begin: Instant,
    ) -> Result<()> {
        drain.pass(joiner);
        for (rank, image) in joiner.with_blocks().into_iter().enumerate() {
            match rank < MAX_PROCESSES {
                true => self.search_one(image, drain, joiner, begin)?,
                false => {
                    let refusal = Refusal::TooManyProcesses(MAX_PROCESSES);
                    refuse(joiner, image, begin, &refusal);
                }
            }
        }
        Ok(())
    }

    fn search_one(
        self,
        image: RunningImage,
        drain: &mut Drain,
        joiner: &mut Joiner,
        begin: Instant,
    ) -> Result<()> {
        let mut read = self.read(image, drain, joiner)?;
        for _ in 1..ATTEMPTS {
            if self.may_be_better(&read) {
                read = self.read(image, drain, joiner)?;
            }
        }
        let at_ns = begin.elapsed().as_nanos() as u64;
        let (reading, mut known) = match read {
            Ok(read) => read,
            Err(refusal) => {
                refuse(joiner, image, begin, &refusal);
                return Ok(());
            }
        };
        known.are_all &= self.is_exact;
        let found = match drain.during(joiner, || reading.find(&known))? {
            Ok(found) => found,
            Err(refusal) => {
                refuse(joiner, image, begin, &refusal);
                return Ok(());
            }
        };
        drain.pass(joiner);
        let facts = Reachability {
            at_ns,
            stopped_ns: reading.stopped.as_nanos() as u64,
            threads: u32::try_from(reading.threads).unwrap_or(u32::MAX),
            memory_bytes: reading.memory,
            stopped_bytes: reading.stopped_bytes,
            unread_bytes: reading.unread,
            is_whole: reading.is_whole(),
            has_all_blocks: known.are_all,
            ..Reachability::default()
        };
        joiner.set_reachability(image, facts, &found);
        Ok(())
    }

    /// Whether another attempt may be better.
    fn may_be_better(self, read: &Result<(Reading, KnownBlocks), Refusal>) -> bool {
        match read {
            // If a time is given, more than that may be too much.
            Ok((reading, _)) => {
                self.longest.is_none() && !reading.is_whole() && reading.memory < LARGE
            }
            Err(refusal) => matches!(
                refusal,
                Refusal::TooSlow(_) | Refusal::NotStopped(_) | Refusal::NewThreads
            ),
        }
    }

    /// Stops a process, and reads its memory, with the blocks that it has at that moment.
    fn read(
        self,
        image: RunningImage,
        drain: &mut Drain,
        joiner: &mut Joiner,
    ) -> Result<Result<(Reading, KnownBlocks), Refusal>> {
        let prepared = match drain.during(joiner, || Prepared::new(image.pid, self.longest))? {
            Ok(prepared) => prepared,
            Err(refusal) => return Ok(Err(refusal)),
        };
        drain.pass(joiner);
        let (stopped, is_stopped) = mpsc::channel();
        let (events_read, are_events_read) = mpsc::channel();
        std::thread::scope(|scope| {
            // A process has one thread that stops it, and goes on when that ends.
            let reading = std::thread::Builder::new()
                .name("heaptrace-stop".to_owned())
                .spawn_scoped(scope, move || prepared.read(&stopped, &are_events_read))
                .context("can't start a thread; does a limit of processes or memory forbid it?")?;
            let mut known = None;
            if is_stopped.recv().is_ok() {
                drain.empty(joiner);
                // The thread may have given up.
                let _ = events_read.send(());
                // Nothing is joined until it is known what lives.
                known = joiner.known_blocks(image);
            }
            let reading = reading.join().map_err(|_| anyhow!("a thread failed"))?;
            Ok(reading.and_then(|reading| Ok((reading, known.ok_or(Refusal::Ended)?))))
        })
    }
}

/// Says why a process was not searched, unless it has ended.
fn refuse(joiner: &mut Joiner, image: RunningImage, begin: Instant, refusal: &Refusal) {
    if matches!(refusal, Refusal::Ended) {
        return;
    }
    let facts = Reachability {
        at_ns: begin.elapsed().as_nanos() as u64,
        refused: refusal.to_string(),
        ..Reachability::default()
    };
    joiner.set_reachability(image, facts, &Found::default());
}
