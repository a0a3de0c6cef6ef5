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
use heaptrace_common::cookie;
use thiserror::Error;

use super::allocators::{Allocator, OnReturn, RET_PROGRAM};
use super::calibration;
use super::program::Program;
use super::running::threads;
use super::tracefs::{Definitions, Tracefs};
use super::turns::{Reached, everybody};
use crate::config::Probes as ProbeKind;
use crate::open::FileId;
use crate::sys::{self, PerfTarget};

/// Threads that close probes side by side: each close waits for the kernel's grace periods.
const CLOSERS: usize = 32;

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
    /// Ids of all events that are defined, for those who tie children to them.
    tied: Arc<Mutex<Vec<u64>>>,
    /// The events that are defined in each file, and whom they reach.
    pub(super) defined: HashMap<FileId, Reached>,
    programs: HashMap<String, OwnedFd>,
    definitions: Definitions,
}

impl Probes {
    /// None yet.
    ///
    /// The holder is a process that allocates nothing while it lives; see [`Probes::link`].
    pub fn new(tracefs: Tracefs, reach: Reach, kind: ProbeKind, holder: u32) -> Self {
        Self {
            keeps_contexts: keeps_contexts(),
            holder,
            reach,
            kind,
            open: Vec::new(),
            threads: Vec::new(),
            tied: Arc::default(),
            defined: HashMap::new(),
            programs: HashMap::new(),
            definitions: Definitions::new(tracefs),
        }
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

    /// Defines the probes of an allocator; they reach nobody yet, unless the run is for all.
    pub fn add_allocator(&mut self, program: &mut Program, allocator: &Allocator) -> Result<()> {
        if self.has(allocator.id) {
            return Ok(());
        }
        let mut events = Reached::default();
        let kind = self.kind;
        let full = |name| match kind {
            ProbeKind::Full => name,
            ProbeKind::Empty => "empty_entry",
        };
        let placed = || allocator.places.iter().map(|place| (place, &place.placed));
        let entries = placed().map(|placed| (placed, full(placed.0.hook.entry), false));
        let returns = placed().filter_map(|placed| {
            let program = match (placed.0.hook.on_return.program()?, kind) {
                (program, ProbeKind::Full) => program,
                (_, ProbeKind::Empty) => "empty_return",
            };
            Some((placed, program, true))
        });
        // Returns first: an entry whose return is not probed would leave its call pending.
        let ret_program = self.program(program, full(RET_PROGRAM))?;
        for offset in &allocator.rets {
            let event = self
                .definitions
                .define(&allocator.file, *offset, false)
                .with_context(|| format!("can't define a probe in {}", allocator.path))?;
            self.link(event, &ret_program, 0, &mut events)
                .with_context(|| format!("can't probe {}", allocator.path))?;
        }
        // Frees before allocations: where a run goes on meanwhile, a free too many is none, but a free that
        // was missed is a leak.
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|((place, _), ..)| {
            let hook = place.hook;
            hook.on_return != OnReturn::Ignored && hook.entry != "munmap_entry"
        });
        for ((place, placement), name, is_return) in returns.chain(entries) {
            let event = self
                .definitions
                .define(&allocator.file, place.offset + placement.offset, is_return)
                .with_context(|| {
                    format!(
                        "can't define a probe on {} in {}",
                        place.names.join("/"),
                        allocator.path
                    )
                })?;
            let program = self.program(program, name)?;
            let cookie = cookie::pack(
                place.reach.0.saturating_add(placement.offset),
                place.reach.1.saturating_sub(placement.offset),
                placement.registers,
            );
            self.link(event, &program, cookie, &mut events)
                .with_context(|| format!("can't probe {}", allocator.path))?;
        }
        if let Ok(mut tied) = self.tied.lock() {
            tied.extend(&events.events);
        }
        self.defined.insert(allocator.id, events);
        Ok(())
    }

    /// Links a program to a defined event.
    ///
    /// A program runs for everybody whom any perf event of the same definition reaches, so one link
    /// is enough. It must not stand on an event that is inherited: with the first heir that exits,
    /// the kernel takes the program away from all. So it stands on one of its own, which belongs to the
    /// holder and reaches nobody else. In a run for all, one more event reaches everybody.
    fn link(
        &mut self,
        event: u64,
        program: &OwnedFd,
        cookie: u64,
        reached: &mut Reached,
    ) -> io::Result<()> {
        let held = sys::perf_event_open(&mut attributes(event), PerfTarget::Thread(self.holder))?;
        let link = sys::link_perf_event(program.as_fd(), held.as_fd(), cookie)?;
        self.open.extend([link, held]);
        reached.events.push(event);
        if self.reach == Reach::All {
            reached.everybody.push(everybody(event)?);
        }
        Ok(())
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
        self.open.extend(open);
    }

    fn program(&mut self, program: &mut Program, name: &str) -> Result<OwnedFd> {
        if !self.programs.contains_key(name) {
            self.programs.insert(name.to_owned(), program.probe(name)?);
        }
        let fd = self.programs.get(name).context("just inserted")?;
        Ok(fd.try_clone()?)
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

    /// Takes all probes out, side by side, and the definitions after them.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        open.append(&mut self.threads);
        open.extend(self.defined.values_mut().flat_map(Reached::take));
        close_all(open);
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
        while !open.is_empty() {
            let share = open.len().div_ceil(CLOSERS).max(1);
            for _ in 0..CLOSERS {
                let part = open.split_off(open.len().saturating_sub(share));
                scope.spawn(move || drop(part));
            }
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
