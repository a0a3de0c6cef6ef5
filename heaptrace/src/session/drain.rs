//! The two streams of events, read in step.
//!
//! Part of the session. The order is what matters: a batch of the ring is taken first, then all of
//! the sideband, and only then is either joined. So every mapping that a stack of the batch can go
//! through is known before the stack.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use aya::maps::{MapData, RingBuf};
use heaptrace_common::counters::Counter;
use heaptrace_common::wire::{BlockKey, FileKey};
use tokio::io::unix::AsyncFd;

use super::waiting::Waiting;
use crate::config::RunConfig;
use crate::events::record::{self, Event};
use crate::events::sideband::{Change, Mapped, Sideband};
use crate::join::{Joiner, ModuleId, Update};
use crate::kernel::program::{self, Program};
use crate::proc::build_id;
use crate::proc::owner::Owner;
use crate::reader::{Budget, Reader};
use crate::sys::{self, Precedence};
use crate::unwind::{self, MappedFile, Tables};

/// Most events of a batch; a batch is a few megabytes at most.
const BATCH: usize = 1 << 16;

/// Most mapped files that wait to be looked at.
const MAX_MAPPED: usize = 1 << 14;

/// Most processes whose owner is remembered.
const MAX_OWNERS: usize = 1 << 12;

/// Reads the streams of a run.
pub(super) struct Drain {
    ring: AsyncFd<RingBuf<MapData>>,
    sideband: AsyncFd<Sideband>,
    tables: Tables,
    /// What readers take, and could not read.
    budget: Budget,
    batch: Vec<Event>,
    /// Bytes of the last batch, and from how many on there is a crowd in the ring.
    taken: usize,
    crowd: usize,
    precedence: Precedence,
    /// Whether this thread runs before all others.
    is_first: bool,
    /// Files that were mapped since they were asked for, and by whom.
    mapped: Waiting<(u32, Mapped)>,
    /// Whose these processes are. Not for long: they end, and others get their ids.
    owners: HashMap<u32, Owner>,
    /// Children that were born since, their parents, and when.
    births: Vec<(u32, u32, u64)>,
    undecoded: u64,
    /// Records of the sideband that were lost before anybody was of interest.
    lost_before: u64,
    /// Marks that were found so far, of frees and of process ends.
    swept: [u64; 2],
}

impl Drain {
    pub(super) fn new(program: &mut Program, config: &RunConfig, budget: &Budget) -> Result<Self> {
        let (ring, crowd) = program.take_ring()?;
        Ok(Self {
            ring: sys::when_readable(ring)?,
            sideband: sys::when_readable(
                Sideband::open().context("can't follow the mappings of processes (perf)")?,
            )?,
            tables: Tables::new(program, &config.tables, budget)?,
            budget: budget.clone(),
            batch: Vec::new(),
            taken: 0,
            crowd,
            precedence: Precedence::of_this_thread(),
            is_first: false,
            mapped: Waiting::new(MAX_MAPPED),
            owners: HashMap::new(),
            births: Vec::new(),
            undecoded: 0,
            lost_before: 0,
            swept: [0; 2],
        })
    }

    /// The next of the files that processes of interest have mapped, with the process.
    pub(super) fn take_mapped(&mut self) -> Option<(Owner, (u32, Mapped))> {
        self.owners.clear();
        self.mapped.pop()
    }

    /// Mapped files that were left out for want of room.
    pub(super) fn left_out(&self) -> u64 {
        self.mapped.left_out()
    }

    /// The children that were born since the last call, their parents, and when.
    pub(super) fn take_births(&mut self) -> Vec<(u32, u32, u64)> {
        std::mem::take(&mut self.births)
    }

    /// Forgets what the sideband has told so far: of processes that are about to become known, what they have mapped until then
    /// is read elsewhere, and nobody else is of interest yet.
    pub(super) fn forget_earlier(&mut self) {
        let sideband = self.sideband.get_mut();
        sideband.drain();
        self.lost_before = sideband.lost();
    }

    /// The unwind tables.
    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Waits until one of the streams has something.
    pub(super) async fn ready(&self) -> Result<()> {
        tokio::select! {
            guard = self.ring.readable() => guard?.clear_ready(),
            guard = self.sideband.readable() => guard?.clear_ready(),
        }
        Ok(())
    }

    /// Joins what there is, a batch at a time; returns once the ring was found empty, or when a
    /// few batches are done.
    pub(super) fn pass(&mut self, joiner: &mut Joiner) {
        const BATCHES: usize = 8;
        for _ in 0..BATCHES {
            let was_emptied = self.batch(joiner);
            self.keep_up(was_emptied);
            if was_emptied {
                return;
            }
        }
    }

    /// What changed since the last call, new modules with their build ids.
    pub(super) fn update(
        &mut self,
        joiner: &mut Joiner,
        reader: &mut Reader,
        elapsed_ns: u64,
    ) -> Result<Update> {
        let mut identify = |new: Vec<(ModuleId, String, Arc<File>)>| -> Vec<(ModuleId, Vec<u8>)> {
            new.into_iter()
                .map(|(id, path, file)| (id, build_id::build_id(reader, &path, &file)))
                .collect()
        };
        let new = joiner.take_unidentified();
        if !new.is_empty() {
            // There may be many, and a reader may not get on.
            for (id, build_id) in self.during(joiner, || identify(new))? {
                joiner.identify(id, build_id);
            }
        }
        for (id, build_id) in identify(joiner.take_unidentified()) {
            joiner.identify(id, build_id);
        }
        Ok(joiner.take_update(elapsed_ns))
    }

    /// Joins what comes while something else is done that may take long.
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

    /// Lets this thread read with precedence: where a hundred threads allocate, it would get a hundredth of a
    /// processor otherwise.
    pub(super) fn hurry(&self) {
        self.precedence.take();
    }

    /// Gives the precedence back, for what is done with the events: names looked up and files written are worth no more
    /// than what others do.
    pub(super) fn give_way(&mut self) {
        self.go_first(false);
        self.precedence.give_back();
    }

    /// Runs before all others while events come faster than this thread gets to read them: where a thousand threads
    /// allocate, its share of a processor is too small for what they do, whatever its precedence.
    fn keep_up(&mut self, was_emptied: bool) {
        self.go_first(!was_emptied || self.taken >= self.crowd);
    }

    fn go_first(&mut self, is_first: bool) {
        if is_first != self.is_first {
            sys::go_first(is_first);
            self.is_first = is_first;
        }
    }

    /// Joins one batch; true if the ring was found empty.
    fn batch(&mut self, joiner: &mut Joiner) -> bool {
        let before = sys::monotonic_now();
        let ring = self.ring.get_mut();
        self.taken = 0;
        while self.batch.len() < BATCH {
            let Some(bytes) = ring.next() else { break };
            self.taken += bytes.len();
            match record::decode(&bytes) {
                Ok(event) => self.batch.push(event),
                Err(error) => {
                    self.undecoded += 1;
                    tracing::warn!("{error}");
                }
            }
        }
        let was_emptied = self.batch.len() < BATCH;
        for event in self.sideband.get_mut().drain() {
            let mapped = match &event.change {
                Change::Mapped(mapped) => {
                    if joiner.follows(event.pid) {
                        load_table(&self.tables, event.pid, mapped.start, mapped.end, None);
                    }
                    mapped.path.starts_with('/').then(|| mapped.clone())
                }
                Change::Forked { parent } => {
                    if joiner.may_know(*parent) {
                        self.births.push((event.pid, *parent, event.time));
                    }
                    None
                }
                Change::Exec { .. } | Change::Exited => None,
            };
            let pid = event.pid;
            joiner.sideband(event);
            // Of which nothing has been seen so far may be one that is just going to have an allocator.
            if let Some(mapped) = mapped
                && joiner.may_know(pid)
            {
                if self.owners.len() >= MAX_OWNERS {
                    self.owners.clear();
                }
                let owner = self.owners.entry(pid).or_insert_with(|| Owner::of(pid));
                self.mapped.push(owner.clone(), (pid, mapped));
            }
        }
        for event in self.batch.drain(..) {
            match event {
                Event::NeedTable(it) => {
                    load_table(&self.tables, it.tgid, it.start, it.end, Some(it.file));
                }
                event => joiner.event(event),
            }
        }
        if was_emptied {
            joiner.settle(before);
        }
        was_emptied
    }

    /// Brings in what is not in the streams, and takes out of the kernel's maps what belongs to ended processes.
    pub(super) fn refresh(&mut self, program: &mut Program, joiner: &mut Joiner) -> Result<()> {
        self.take_in(program, joiner)?;
        program.forget_blocks(joiner.take_orphans())?;
        program.forget_stacks(joiner.take_orphan_stacks())
    }

    /// Brings in what is not in the streams: the kernel's counters and marks.
    fn take_in(&mut self, program: &mut Program, joiner: &mut Joiner) -> Result<()> {
        let counters = program.counters()?;
        for (counter, count) in Counter::ALL.iter().zip(counters) {
            if counter.is_loss() {
                joiner.set_lost(counter.name(), count);
            } else {
                joiner.set_noted(counter.name(), count);
            }
        }
        joiner.set_lost("undecoded", self.undecoded);
        let lost = self.sideband.get_ref().lost();
        joiner.set_lost("sideband", lost.saturating_sub(self.lost_before));
        let tables = self.tables.counts();
        joiner.set_noted("unwind_tables_refused", tables.refused);
        joiner.set_noted("unwind_tables_evicted", tables.evicted);
        joiner.set_noted("unwind_tables_delayed", tables.delayed);
        joiner.set_noted("unwind_tables_cached", tables.cached);
        joiner.set_noted("unwind_functions_damaged", tables.damaged);
        joiner.set_without_tables(self.tables.refused());
        joiner.set_unreadable(self.budget.unread());
        let count = |counter: Counter| counters[counter as usize];
        // An allocation that is lost proves the block freed that stood at its address, and marks it.
        let marked = [
            count(Counter::FreesMarked) + count(Counter::RingFull),
            count(Counter::EndsMarked),
        ];
        if marked[0] > self.swept[0] {
            self.sweep_mappings(program, joiner)?;
            self.sweep_blocks(program, joiner)?;
            self.swept[0] = marked[0];
        }
        if marked[1] > self.swept[1] {
            sweep_ends(program, joiner)?;
            self.swept[1] = marked[1];
        }
        joiner.set_sizes(program.sizes()?);
        joiner.set_kernel_map_bytes(program::map_bytes());
        joiner.set_agent_usage(sys::own_usage());
        // A process may end while its entry is read.
        for (_, state) in program.processes()?.iter().filter_map(Result::ok) {
            joiner.set_process_counters(&state.0);
        }
        Ok(())
    }

    /// Joins the frees whose events found no place in the ring.
    fn sweep_blocks(&mut self, program: &Program, joiner: &mut Joiner) -> Result<()> {
        // The allocations of these blocks stand in the ring before their frees were marked.
        while !self.batch(joiner) {}
        let marked: Vec<BlockKey> = program
            .live()?
            .iter()
            .filter_map(Result::ok)
            .filter(|(_, block)| block.0.freed_at != 0)
            .map(|(key, _)| key.0)
            .collect();
        for key in marked {
            // The block may meanwhile have been replaced by a new one at its address: then that is
            // what is taken out here. Its free will be missed, so it is joined as freed now: a
            // live block less, which is counted, but never a leak that is none.
            if let Some(block) = program.take_block(key)? {
                if block.freed_at == 0 {
                    while !self.batch(joiner) {}
                    joiner.lost_one("swept_live");
                }
                joiner.swept(key.process, block.id);
            }
        }
        Ok(())
    }

    /// Joins the unmappings whose events found no place in the ring.
    fn sweep_mappings(&mut self, program: &Program, joiner: &mut Joiner) -> Result<()> {
        let unmapped = program.take_unmapped()?;
        // What they unmapped was mapped before: that stands in the ring before they were kept.
        if !unmapped.is_empty() {
            while !self.batch(joiner) {}
        }
        unmapped.iter().for_each(|it| joiner.unmapped(it));
        Ok(())
    }

    /// Joins everything that is left. The gate must be closed.
    pub(super) fn finish(&mut self, program: &mut Program, joiner: &mut Joiner) -> Result<()> {
        // A program that had passed the gate before it closed may still be writing.
        const GRACE: Duration = Duration::from_millis(5);
        while !self.batch(joiner) {}
        std::thread::sleep(GRACE);
        while !self.batch(joiner) {}
        // The maps go with the program: nothing has to be taken out any more.
        self.take_in(program, joiner)
    }
}

/// Loads the table of a file that a process has mapped, under the key that it was asked for by, or
/// else by the one that it most probably has.
fn load_table(tables: &Tables, pid: u32, start: u64, end: u64, asked: Option<FileKey>) {
    if asked == Some(FileKey::VDSO) {
        unwind::vdso().map_or_else(|| tables.forget(FileKey::VDSO), |file| tables.answer(file));
        return;
    }
    let file = MappedFile::of_mapping(pid, start, end);
    match asked {
        None => file.into_iter().for_each(|file| tables.load(file)),
        Some(key) => match file.and_then(|file| file.under(key)) {
            Some(file) => tables.answer(file),
            // The process ended, or mapped something else there.
            None => tables.forget(key),
        },
    }
}

/// Joins the ends of processes whose events found no place in the ring.
fn sweep_ends(program: &Program, joiner: &mut Joiner) -> Result<()> {
    let ended: Vec<u64> = program.ended()?.keys().filter_map(Result::ok).collect();
    for serial in ended {
        if let Some(end) = program.take_end(serial)? {
            joiner.event(Event::ProcessEnd(end));
        }
    }
    Ok(())
}

/// Shows what the kernel program says of itself.
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
