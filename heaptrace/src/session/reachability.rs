//! Looks for blocks that nothing points to, in runs that want that: at marks, and at the end.
//!
//! Part of the session. A process is stopped only for as long as it takes to read its memory, and to join the events of the time before.
//! Must not know how the memory is searched.

use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};

use super::drain::Drain;
use crate::join::{Joiner, Reachability, RunningImage};
use crate::reachability::{Found, KnownBlocks, Prepared, Reading, Refusal};

/// Most processes that are searched at a time: those with most blocks.
const MAX_PROCESSES: usize = 16;

/// How often a process is stopped if the machine is too busy to read its memory in time.
const ATTEMPTS: usize = 6;

/// A process with so much memory is stopped once: more attempts would take long.
const LARGE: u64 = 256 << 20;

/// Looks for blocks that nothing points to. Events are joined meanwhile.
pub(super) fn search(
    drain: &mut Drain,
    joiner: &mut Joiner,
    begin: Instant,
    is_exact: bool,
) -> Result<()> {
    drain.pass(joiner);
    for (rank, image) in joiner.with_blocks().into_iter().enumerate() {
        let mut read = match rank < MAX_PROCESSES {
            true => read(image, drain, joiner)?,
            false => Err(Refusal::TooManyProcesses(MAX_PROCESSES)),
        };
        for _ in 1..ATTEMPTS {
            if is_too_slow(&read) {
                read = self::read(image, drain, joiner)?;
            }
        }
        let mut facts = Reachability {
            at_ns: begin.elapsed().as_nanos() as u64,
            ..Reachability::default()
        };
        let (reading, mut known) = match read {
            Ok(read) => read,
            Err(Refusal::Ended) => continue,
            Err(refusal) => {
                facts.refused = refusal.to_string();
                joiner.set_reachability(image, facts, &Found::default());
                continue;
            }
        };
        known.are_all &= is_exact;
        let found = match drain.during(joiner, || reading.find(&known))? {
            Ok(found) => found,
            Err(refusal) => {
                facts.refused = refusal.to_string();
                joiner.set_reachability(image, facts, &Found::default());
                continue;
            }
        };
        facts.stopped_ns = reading.stopped.as_nanos() as u64;
        facts.threads = u32::try_from(reading.threads).unwrap_or(u32::MAX);
        facts.memory_bytes = reading.memory;
        facts.stopped_bytes = reading.stopped_bytes;
        facts.unread_bytes = reading.unread;
        facts.is_whole = reading.is_whole();
        facts.has_all_blocks = known.are_all;
        drain.pass(joiner);
        joiner.set_reachability(image, facts, &found);
    }
    Ok(())
}

/// Whether another attempt may be better.
fn is_too_slow(read: &Result<(Reading, KnownBlocks), Refusal>) -> bool {
    match read {
        Ok((reading, _)) => !reading.is_whole() && reading.memory < LARGE,
        Err(refusal) => matches!(
            refusal,
            Refusal::TooSlow(_) | Refusal::NotStopped(_) | Refusal::NewThreads
        ),
    }
}

/// Stops a process, and reads its memory, with the blocks that it has at that moment.
fn read(
    image: RunningImage,
    drain: &mut Drain,
    joiner: &mut Joiner,
) -> Result<Result<(Reading, KnownBlocks), Refusal>> {
    let prepared = match drain.during(joiner, || Prepared::new(image.pid))? {
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
