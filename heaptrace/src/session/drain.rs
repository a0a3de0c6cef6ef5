//! Reads the two streams of events, the ring and the sideband, and hands them to the joiner in order.
//!
//! Part of the session. A batch of the ring is read first, then all of the sideband, and only then is either
//! joined. So every mapping is known before the stacks that go through it. Must not know what else a run does
//! with its state.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use aya::maps::{MapData, RingBuf};
use heaptrace_common::wire::FileKey;
use tokio::io::unix::AsyncFd;

use super::held::{Held, Sources};
use super::java::Java;
use super::mapped_files::MappedFiles;
use super::priority::Priority;
use super::targets;
use crate::config::RunConfig;
use crate::events::record::{self, Event};
use crate::events::sideband::{Change, Mapped, SideEvent, Sideband, Wakes};
use crate::join::{Joiner, Loss, Note};
use crate::kernel::program::Program;
use crate::kernel::ring_positions::RingPositions;
use crate::probes::target_events::Reach;
use crate::proc::owner::Owner;
use crate::reader::Budget;
use crate::sys;
use crate::unwind::{self, MappedFile, Tables};

/// Most events of a batch; a batch is a few megabytes at most.
const BATCH: usize = 1 << 16;

/// The birth of a process.
pub(super) struct Birth {
    pub(super) pid: u32,
    pub(super) parent: u32,
    /// On the monotonic clock.
    pub(super) time: u64,
}

/// Reads the streams of a run.
pub(super) struct Drain {
    ring: AsyncFd<RingBuf<MapData>>,
    positions: RingPositions,
    sideband: AsyncFd<Sideband>,
    tables: Tables,
    /// The limits of reader processes, and the files that they could not read.
    budget: Budget,
    batch: Vec<Event>,
    held: Held,
    java: Java,
    /// Bytes of the last batch.
    batch_bytes: usize,
    /// From this many bytes in a batch on, the thread runs before all others.
    crowd_bytes: usize,
    priority: Priority,
    mapped: MappedFiles,
    births: Vec<Birth>,
    /// Reached processes whose first thread has ended, or that have begun another program.
    turned: Vec<u32>,
    undecoded: u64,
    /// Records of the sideband that were lost before any process was of interest.
    lost_before: u64,
}

impl Drain {
    pub(super) fn new(program: &mut Program, config: &RunConfig, budget: &Budget) -> Result<Self> {
        let (ring, crowd_bytes) = program.take_ring()?;
        let wakes = match targets::reach(config) {
            Reach::OneByOne => Wakes::Seldom,
            Reach::All | Reach::Tree | Reach::Processes => Wakes::WithEachProgram,
        };
        let positions = RingPositions::of(ring.as_fd()).context("can't map the ring")?;
        Ok(Self {
            positions,
            ring: sys::when_readable(ring)?,
            sideband: sys::when_readable(
                Sideband::open(wakes).context("can't follow the mappings of processes (perf)")?,
            )?,
            tables: Tables::new(program, &config.tables, budget)?,
            budget: budget.clone(),
            batch: Vec::new(),
            held: Held::new(config, budget)?,
            java: Java::new(program, budget)?,
            batch_bytes: 0,
            crowd_bytes,
            priority: Priority::of_this_thread(),
            mapped: MappedFiles::new(),
            births: Vec::new(),
            turned: Vec::new(),
            undecoded: 0,
            lost_before: 0,
        })
    }

    /// Takes the next file that a process of interest has mapped, with its owner and the process.
    pub(super) fn take_mapped(&mut self) -> Option<(Owner, u32, Mapped)> {
        self.mapped.pop()
    }

    /// Number of mapped files that were dropped for want of room.
    pub(super) fn dropped_files(&self) -> u64 {
        self.mapped.dropped()
    }

    /// The births since the last call.
    pub(super) fn take_births(&mut self) -> Vec<Birth> {
        std::mem::take(&mut self.births)
    }

    /// The reached processes whose first thread has ended since the last call, or that have begun another program.
    pub(super) fn take_turned(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.turned)
    }

    /// Hands reached processes out once more at the next call.
    pub(super) fn turn_again(&mut self, pids: Vec<u32>) {
        self.turned.extend(pids);
    }

    /// Discards the sideband's records until now. The first targets are about to be followed: their earlier
    /// mappings are read elsewhere, and no other process is of interest yet.
    pub(super) fn forget_earlier(&mut self) {
        let sideband = self.sideband.get_mut();
        sideband.drain();
        self.lost_before = sideband.lost();
    }

    /// The unwind tables.
    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Waits until one of the streams has events.
    pub(super) async fn ready(&self) -> Result<()> {
        tokio::select! {
            guard = self.ring.readable() => guard?.clear_ready(),
            guard = self.sideband.readable() => guard?.clear_ready(),
        }
        Ok(())
    }

    /// Joins the available events, a batch at a time; returns when the ring was found empty, or after a few
    /// batches.
    pub(super) fn pass(&mut self, joiner: &mut Joiner) {
        const BATCHES: usize = 8;
        for _ in 0..BATCHES {
            let was_emptied = self.batch(joiner);
            let is_behind = !was_emptied || self.batch_bytes >= self.crowd_bytes;
            self.priority.follow(is_behind);
            if was_emptied {
                return;
            }
        }
    }

    /// Joins all events that have a place in the ring by now.
    pub(super) fn empty(&mut self, joiner: &mut Joiner) {
        self.read_all(joiner);
        self.flush(joiner);
    }

    /// The same, but waits for unwind tables that held events need, for some seconds at most.
    pub(super) fn complete(&mut self, joiner: &mut Joiner) {
        const PAUSE: Duration = Duration::from_millis(1);
        self.read_all(joiner);
        while self.held.is_holding() {
            std::thread::sleep(PAUSE);
            self.pass(joiner);
        }
    }

    /// Joins the events that are held until an unwind table is ready.
    pub(super) fn flush(&mut self, joiner: &mut Joiner) {
        let Self {
            held, tables, java, ..
        } = self;
        held.flush(joiner, &mut Sources { tables, java });
    }

    /// Reads what runtimes have written about the code that they generated, for some seconds at most.
    pub(super) fn read_names(&mut self, joiner: &mut Joiner) {
        self.held.read_names(joiner);
    }

    /// Reads all events that have a place in the ring by now.
    fn read_all(&mut self, joiner: &mut Joiner) {
        /// A thread can lose its processor between reserving a record and writing it.
        const PATIENCE: Duration = Duration::from_secs(1);
        const PAUSE: Duration = Duration::from_micros(200);
        let end = self.positions.reserved();
        let begun = Instant::now();
        loop {
            let was_emptied = self.batch(joiner);
            if self.positions.read() >= end {
                return;
            }
            if was_emptied {
                if begun.elapsed() > PATIENCE {
                    return joiner.lost_one(Loss::Unread);
                }
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Runs work that may take long on another thread, and joins events meanwhile.
    pub(super) fn during<T: Send>(
        &mut self,
        joiner: &mut Joiner,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        const PAUSE: Duration = Duration::from_millis(1);
        std::thread::scope(|scope| {
            let working = std::thread::Builder::new()
                .spawn_scoped(scope, work)
                .context("can't start a thread; does a limit of processes or memory forbid it?")?;
            while !working.is_finished() {
                self.pass(joiner);
                std::thread::sleep(PAUSE);
            }
            working.join().map_err(|_| anyhow!("a thread failed"))
        })
    }

    /// Raises this thread's priority, for reading.
    pub(super) fn raise_priority(&self) {
        self.priority.raise();
    }

    /// Restores this thread's ordinary priority, for what is done with the events.
    pub(super) fn restore_priority(&mut self) {
        self.priority.restore();
    }

    /// Joins one batch; returns whether the ring was found empty.
    fn batch(&mut self, joiner: &mut Joiner) -> bool {
        let before = sys::monotonic_now();
        self.read_ring();
        self.held.set_read();
        let was_emptied = self.batch.len() < BATCH;
        for event in self.sideband.get_mut().drain() {
            self.join_side_event(event, joiner);
        }
        let Self {
            held,
            tables,
            java,
            batch,
            ..
        } = self;
        java.begin_batch();
        let mut sources = Sources { tables, java };
        held.proceed(joiner, &mut sources);
        for event in batch.drain(..) {
            match event {
                Event::NeedTable(it) => {
                    load_table(sources.tables, it.tgid, it.start, it.end, Some(it.file));
                }
                Event::NeedJvm(it) => sources.java.need(it),
                Event::JavaFrames(it) => {
                    let named = Event::NamedJavaFrames(sources.java.name(&it, 0));
                    held.join(named, joiner, &mut sources);
                }
                event => held.join(event, joiner, &mut sources),
            }
        }
        // A held event may need the mappings of an ended process.
        if was_emptied && !self.held.is_holding() {
            joiner.settle(before);
        }
        was_emptied
    }

    /// Reads events from the ring until the batch is full or the ring empty.
    fn read_ring(&mut self) {
        let ring = self.ring.get_mut();
        self.batch_bytes = 0;
        while self.batch.len() < BATCH {
            let Some(bytes) = ring.next() else { break };
            self.batch_bytes += bytes.len();
            match record::decode(&bytes) {
                Ok(event) => self.batch.push(event),
                Err(error) => {
                    self.undecoded += 1;
                    tracing::warn!("{error}");
                }
            }
        }
    }

    fn join_side_event(&mut self, event: SideEvent, joiner: &mut Joiner) {
        let pid = event.pid;
        let mapped = match &event.change {
            Change::Mapped(mapped) => {
                if joiner.follows(pid) {
                    load_table(&self.tables, pid, mapped.start, mapped.end, None);
                    self.java.mapped(pid, &mapped.path);
                }
                mapped.path.starts_with('/').then(|| mapped.clone())
            }
            Change::Forked { parent } => {
                if joiner.may_know(*parent) {
                    self.births.push(Birth {
                        pid,
                        parent: *parent,
                        time: event.time,
                    });
                }
                None
            }
            Change::Exec { .. } | Change::Exited => {
                if joiner.has_reached(pid) {
                    self.turned.push(pid);
                }
                None
            }
        };
        joiner.sideband(event);
        // A process without events so far may be about to map an allocator.
        if let Some(mapped) = mapped
            && joiner.may_know(pid)
        {
            self.mapped.push(pid, mapped);
        }
    }

    /// Reports the losses of the streams, and the state of unwind tables and readers.
    pub(super) fn report(&self, joiner: &mut Joiner) {
        joiner.set_lost(Loss::Undecoded, self.undecoded);
        let lost = self.sideband.get_ref().lost();
        joiner.set_lost(Loss::Sideband, lost.saturating_sub(self.lost_before));
        let tables = self.tables.counts();
        joiner.set_noted(Note::UnwindTablesRefused, tables.refused);
        joiner.set_noted(Note::UnwindTablesEvicted, tables.evicted);
        joiner.set_noted(Note::UnwindTablesDelayed, tables.delayed);
        joiner.set_noted(Note::UnwindTablesCached, tables.cached);
        joiner.set_noted(Note::UnwindFunctionsDamaged, tables.damaged);
        joiner.set_noted(Note::JavaFramesUnnamed, self.java.unnamed());
        joiner.set_without_tables(self.tables.refused());
        joiner.set_unreadable(self.budget.unread());
        joiner.set_noted(Note::JitFilesRefused, self.held.refused_files());
    }
}

/// Loads the unwind table of a file that a process has mapped. The table gets the key by which the kernel
/// program requested it. Without a request, it gets the most probable key of the file.
fn load_table(tables: &Tables, pid: u32, start: u64, end: u64, requested: Option<FileKey>) {
    if requested == Some(FileKey::VDSO) {
        unwind::vdso().map_or_else(|| tables.forget(FileKey::VDSO), |file| tables.answer(file));
        return;
    }
    let file = MappedFile::of_mapping(pid, start, end);
    match requested {
        None => file.into_iter().for_each(|file| tables.load(file)),
        Some(key) => match file.and_then(|file| file.under(key)) {
            Some(file) => tables.answer(file),
            // The process ended, or mapped another file there.
            None => tables.forget(key),
        },
    }
}

/// Shows the log lines of the kernel program.
pub(super) fn log(program: &mut Program) -> Result<()> {
    let mut logger = sys::when_readable(program.logger()?)?;
    tokio::spawn(async move {
        while let Ok(mut guard) = logger.readable_mut().await {
            guard.get_inner_mut().flush();
            guard.clear_ready();
        }
    });
    Ok(())
}
