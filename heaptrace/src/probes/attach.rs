//! Probes in place: perf events of defined uprobes, with the programs linked to them.
//!
//! Stage: probes. A traced process and its children pay for a probe, nobody else: events belong to
//! threads and are inherited by what those start. Knows nothing of what the programs send.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use aya_obj::generated::{
    perf_event_attr,
    perf_event_sample_format::{PERF_SAMPLE_READ, PERF_SAMPLE_TID},
    perf_sw_ids, perf_type_id,
};
use thiserror::Error;

use super::allocators::Allocator;
use super::calibration;
use super::duty_cycle::{Reached, everybody};
use super::guardian::{Guardian, Heir};
use super::plan::{Planned, plan};
use super::refusal::{Refusal, Spent, unprobeable};
use crate::config::Probes as ProbeKind;
use crate::kernel::program::Program;
use crate::kernel::tracefs::{Definitions, Tracefs};
use crate::open::FileId;
use crate::proc::owner::Owner;
use crate::proc::processes::threads;
use crate::sys::{self, PerfTarget};

/// Threads that close probes side by side: each close waits for the kernel's grace periods.
const CLOSERS: usize = 32;

/// Definitions that are taken out before a run ends: a second or two.
const FEW: usize = 80;

/// Most files that are remembered as refused, each of which is counted once.
const MOST_REFUSED: usize = 1 << 20;

/// Kernels swap the perf contexts of parent and child when one is scheduled after the other, because
/// as counters they are worth the same. As probes they are not: a child that exits then takes its
/// parent's away. Events whose samples read their own value are exempt.
pub(super) const STAYS_WITH_ITS_TASK: u64 = PERF_SAMPLE_READ as u64 | PERF_SAMPLE_TID as u64;

/// Whom probes reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everybody.
    All,
    /// The threads of processes, and what those start.
    Tree,
    /// The threads of processes, and new ones of theirs, but no child processes.
    Processes,
}

/// A process that can't be probed.
#[derive(Debug, Error)]
pub enum AttachError {
    /// It is not there.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// It went away.
    #[error("process {0} ended while heaptrace was attaching to it")]
    Ended(u32),
}

/// What was opened for a file.
#[derive(Default)]
struct Opened {
    held: Vec<OwnedFd>,
    reached: Reached,
}

/// Every probe of a run.
pub struct Probes {
    pub(super) reach: Reach,
    kind: ProbeKind,
    // Order matters: descriptors go before definitions that they keep in use.
    open: Vec<OwnedFd>,
    /// The events of the threads that are reached one by one.
    pub(super) threads: Vec<OwnedFd>,
    /// Whether the kernel (since 6.12) lets events stay with the process that they were made for.
    pub(super) keeps_contexts: bool,
    /// The process that holds the links.
    holder: u32,
    /// Who takes out what takes long.
    heir: Heir,
    /// Ids of all events that are defined, for those who tie children to them.
    tied: Arc<Mutex<Vec<u64>>>,
    /// The events that are defined in each file, and whom they reach.
    pub(super) defined: HashMap<FileId, Reached>,
    programs: HashMap<&'static str, OwnedFd>,
    spent: Spent,
    refused: HashSet<FileId>,
    definitions: Definitions,
}

impl Probes {
    /// None yet.
    ///
    /// The guardian holds the links: it allocates nothing while it lives; see [`Probes::link`].
    pub fn new(
        tracefs: Tracefs,
        reach: Reach,
        kind: ProbeKind,
        guardian: &Guardian,
    ) -> io::Result<Self> {
        Ok(Self {
            keeps_contexts: keeps_contexts(),
            holder: guardian.pid,
            heir: guardian.heir()?,
            reach,
            kind,
            open: Vec::new(),
            threads: Vec::new(),
            tied: Arc::default(),
            defined: HashMap::new(),
            programs: HashMap::new(),
            spent: Spent::default(),
            refused: HashSet::new(),
            definitions: Definitions::new(tracefs),
        })
    }

    /// Time that a hit of a probe takes on this machine, without what programs do in it.
    pub fn measure_hit(&mut self) -> io::Result<Duration> {
        let (hit, open) = calibration::hit(&mut self.definitions)?;
        self.open.extend(open);
        Ok(hit)
    }

    /// Whether a file is probed already.
    pub fn has(&self, file: FileId) -> bool {
        self.defined.contains_key(&file)
    }

    /// Whether any file is probed.
    pub fn has_any(&self) -> bool {
        !self.defined.is_empty()
    }

    /// Whether a file of this owner that is not probed may be named: each has only so much of the list.
    pub fn may_name(&mut self, owner: &Owner) -> bool {
        self.spent.take_name(owner)
    }

    /// Files that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.len() as u64
    }

    /// Defines the probes of an allocator; they reach nobody yet, unless the run is for all.
    ///
    /// An error is the machine's, and ends the run. A refusal is the file's, which is then probed nowhere; it counts
    /// towards what its owner may have as long as it is probed.
    pub fn add_allocator(
        &mut self,
        program: &mut Program,
        allocator: &Allocator,
        owner: &Owner,
    ) -> Result<Result<(), Refusal>> {
        if self.has(allocator.id) {
            return Ok(Ok(()));
        }
        let added = self.try_allocator(program, allocator, owner)?;
        if added.is_err() && self.refused.len() < MOST_REFUSED {
            self.refused.insert(allocator.id);
        }
        Ok(added)
    }

    fn try_allocator(
        &mut self,
        program: &mut Program,
        allocator: &Allocator,
        owner: &Owner,
    ) -> Result<Result<(), Refusal>> {
        let planned = plan(allocator, self.kind);
        for probe in &planned {
            // Now, before something is attached that would have to be taken back.
            if let Some(why) = unprobeable(&allocator.file, probe.offset) {
                return Ok(Err(Refusal::Instruction(probe.function.clone(), why)));
            }
            self.load(program, probe.program)?;
        }
        if let Err(refusal) = self.spent.take(owner, planned.len()) {
            return Ok(Err(refusal));
        }
        let first = self.definitions.count();
        let mut opened = Opened::default();
        match self.open_all(allocator, &planned, &mut opened) {
            Ok(()) => {
                if let Ok(mut tied) = self.tied.lock() {
                    tied.extend(&opened.reached.events);
                }
                self.open.append(&mut opened.held);
                self.defined.insert(allocator.id, opened.reached);
                Ok(Ok(()))
            }
            Err(refusal) => {
                self.spent.give_back(owner, planned.len());
                // What reaches processes first: a half of an allocator must not be seen.
                close_all(opened.reached.take());
                close_all(opened.held);
                self.definitions.remove_from(first);
                Ok(Err(refusal))
            }
        }
    }

    fn open_all(
        &mut self,
        allocator: &Allocator,
        planned: &[Planned],
        opened: &mut Opened,
    ) -> Result<(), Refusal> {
        self.has_room_for(planned.len())?;
        for probe in planned {
            let refused = |error| Refusal::of_kernel(&probe.function, error);
            let event = self
                .definitions
                .define(&allocator.file, probe.offset, probe.is_return)
                .map_err(refused)?;
            let program = self.programs.get(probe.program);
            let program = program.ok_or_else(|| refused(io::ErrorKind::NotFound.into()))?;
            opened.held.extend(self.link(event, program, probe)?);
            opened.reached.events.push(event);
            if self.reach == Reach::All {
                opened
                    .reached
                    .everybody
                    .push(everybody(event).map_err(refused)?);
            }
        }
        Ok(())
    }

    /// Whether so many probes find room among the open files, of which others are wanted, too.
    fn has_room_for(&self, probes: usize) -> Result<(), Refusal> {
        let most = sys::most_open_files();
        let of_each = if self.reach == Reach::All { 3 } else { 2 };
        let wanted = (self.count() + probes * of_each) as u64;
        if wanted > most - most / 4 {
            return Err(Refusal::NoDescriptors(most));
        }
        Ok(())
    }

    /// Links a program to a defined event.
    ///
    /// A program runs for everybody whom any perf event of the same definition reaches, so one link
    /// is enough. It must not stand on an event that is inherited: with the first heir that exits,
    /// the kernel takes the program away from all. So it stands on one of its own, which belongs to the
    /// holder and reaches nobody else. In a run for all, one more event reaches everybody.
    fn link(
        &self,
        event: u64,
        program: &OwnedFd,
        probe: &Planned,
    ) -> Result<[OwnedFd; 2], Refusal> {
        let held = sys::perf_event_open(&mut attributes(event), PerfTarget::Thread(self.holder));
        let held = held.map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => Refusal::NoGuardian,
            _ => Refusal::of_kernel(&probe.function, error),
        })?;
        let link = sys::link_perf_event(program.as_fd(), held.as_fd(), probe.cookie);
        let link = link.map_err(|error| Refusal::of_kernel(&probe.function, error))?;
        Ok([link, held])
    }

    /// Lets a defined event reach a thread and what it starts.
    fn reach(&mut self, event: u64, tid: u32) -> io::Result<()> {
        let mut attr = attributes(event);
        attr.set_inherit(1);
        attr.set_inherit_thread(u64::from(self.reach == Reach::Processes));
        if self.keeps_contexts {
            attr.sample_type = STAYS_WITH_ITS_TASK;
        }
        let event = sys::perf_event_open(&mut attr, PerfTarget::Thread(tid))?;
        self.threads.push(event);
        Ok(())
    }

    /// What new children need where the kernel swaps the events of relatives; `None` where it doesn't.
    pub fn ties(&self) -> Option<Ties> {
        let is_needed = self.reach == Reach::Tree && !self.keeps_contexts;
        is_needed.then(|| Ties {
            events: Arc::clone(&self.tied),
        })
    }

    /// Takes over descriptors, to be closed with all others.
    pub fn adopt(&mut self, open: Vec<OwnedFd>) {
        self.threads.extend(open);
    }

    /// Loads a program that probes need.
    fn load(&mut self, program: &mut Program, name: &'static str) -> Result<()> {
        if !self.programs.contains_key(name) {
            self.programs.insert(name, program.probe(name)?);
        }
        Ok(())
    }

    /// Lets the probes defined so far reach every thread of a process.
    pub fn add_process(&mut self, pid: u32) -> Result<()> {
        let mut done = HashSet::new();
        // A thread that starts meanwhile inherits from a done one, or is found in the next round.
        loop {
            let threads = threads(pid).map_err(|_| self.gone(pid, &done))?;
            let new: Vec<u32> = threads
                .into_iter()
                .filter(|tid| !done.contains(tid))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            for tid in new {
                let is_first = done.is_empty();
                let events: Vec<u64> = self.events().collect();
                for event in events {
                    match self.reach(event, tid) {
                        Ok(()) => {}
                        // A thread of many may end at any time.
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                            if is_first && threads_left(pid) == 0 {
                                return Err(AttachError::Ended(pid).into());
                            }
                            break;
                        }
                        Err(error) => {
                            return Err(error)
                                .with_context(|| format!("can't probe process {pid}"));
                        }
                    }
                }
                done.insert(tid);
            }
        }
    }

    /// Lets the probes of a file reach a process that was reached by others before, if it is still there.
    pub fn reach_process(&mut self, file: FileId, pid: u32) -> Result<()> {
        let reached = self.defined.get(&file);
        let events = reached.map_or_else(Vec::new, |it| it.events.clone());
        // One that has ended, and a thread that ends meanwhile, need nothing.
        for tid in threads(pid).unwrap_or_default() {
            for event in &events {
                match self.reach(*event, tid) {
                    Ok(()) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break,
                    Err(error) => {
                        return Err(error).with_context(|| format!("can't probe process {pid}"));
                    }
                }
            }
        }
        Ok(())
    }

    fn gone(&self, pid: u32, done: &HashSet<u32>) -> anyhow::Error {
        if done.is_empty() {
            AttachError::NoProcess(pid).into()
        } else {
            AttachError::Ended(pid).into()
        }
    }

    /// Ids of all events that are defined.
    fn events(&self) -> impl Iterator<Item = u64> {
        self.defined.values().flat_map(|it| &it.events).copied()
    }

    /// How many probes are open.
    pub fn count(&self) -> usize {
        let of_files: usize = self.defined.values().map(Reached::count).sum();
        self.open.len() + self.threads.len() + of_files
    }

    /// Takes all probes out of the processes that they reach, and the definitions after them. Where there are many, the
    /// guardian does the latter, which is long; returns how many it takes out.
    pub fn close(mut self) -> usize {
        self.take_out()
    }

    fn take_out(&mut self) -> usize {
        let mut reaching = std::mem::take(&mut self.threads);
        reaching.extend(self.defined.values_mut().flat_map(Reached::take));
        // Nobody traps any more: what is left is only held.
        close_all(reaching);
        let mut held = std::mem::take(&mut self.open);
        let mut left = 0;
        if self.definitions.count() > FEW {
            let all = held.len();
            held = self.heir.leave(held);
            if held.len() < all {
                self.definitions.leave();
                left = self.definitions.count();
            }
        }
        close_all(held);
        left
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.take_out();
    }
}

/// Events of a child's own beside those that it inherited.
///
/// They do not go with anybody's end, so the child stays probed whatever becomes of the others. And since nobody
/// inherits them, the kernel no longer takes the child's events for the same as those of its own children, and
/// swaps nothing from then on.
pub struct Ties {
    events: Arc<Mutex<Vec<u64>>>,
}

impl Ties {
    /// Opens them for a process that has just been forked. They have to stay open until it ends.
    pub fn tie(&self, pid: u32) -> io::Result<Vec<OwnedFd>> {
        let open =
            |event: &u64| sys::perf_event_open(&mut attributes(*event), PerfTarget::Thread(pid));
        let events = self.events.lock().map(|events| events.clone());
        events.unwrap_or_default().iter().map(open).collect()
    }
}

/// Whether the kernel takes events that stay with their task and are inherited.
fn keeps_contexts() -> bool {
    // SAFETY: the struct is plain integers, for which zero is "nothing asked".
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.type_ = perf_type_id::PERF_TYPE_SOFTWARE as u32;
    attr.config = perf_sw_ids::PERF_COUNT_SW_DUMMY as u64;
    attr.sample_type = STAYS_WITH_ITS_TASK;
    attr.set_disabled(1);
    attr.set_inherit(1);
    let opened = sys::perf_event_open(&mut attr, PerfTarget::Thread(0));
    !matches!(opened, Err(error) if error.raw_os_error() == Some(libc::EINVAL))
}

pub(super) fn close_all(mut open: Vec<OwnedFd>) {
    std::thread::scope(|scope| {
        let share = open.len().div_ceil(CLOSERS).max(1);
        while !open.is_empty() {
            let part = open.split_off(open.len().saturating_sub(share));
            // Where no thread is to be had, what it would have closed is closed with it.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(part));
        }
    });
}

pub(super) fn attributes(event: u64) -> perf_event_attr {
    // SAFETY: the struct is plain integers, for which zero is "nothing asked".
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.type_ = perf_type_id::PERF_TYPE_TRACEPOINT as u32;
    attr.config = event;
    // Nothing is to be counted: a disabled event is not scheduled with its thread, and its program
    // runs all the same.
    attr.set_disabled(1);
    attr
}

fn threads_left(pid: u32) -> usize {
    threads(pid).map_or(0, |threads| threads.len())
}
