//! The probes of a run: definitions, kernel programs linked to them, and events that reach processes.
//!
//! Stage: probes. Only traced processes and their descendants pay for a probe: an event belongs to a
//! thread, and its children inherit it. Must not know what the programs send.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::allocators::Allocator;
use super::calibration;
use super::fast::code::Probe;
use super::guardian::{Connection, Guardian};
use super::perf_events::{close_all, close_for, keeps_contexts, open_for_thread};
use super::plan::{Planned, plan, plan_fast_code};
use super::probed_file::ProbedFile;
use super::refusal::{Refusal, Spent, unprobeable};
use super::target_events::{Reach, TargetEvents};
use super::ties::Ties;
use crate::config::Probes as ProbeKind;
use crate::kernel::program::Program;
use crate::kernel::tracefs::{Definitions, Tracefs};
use crate::open::{FileId, Opened as CodeFile};
use crate::proc::maps;
use crate::proc::owner::Owner;
use crate::reader;
use crate::sys;

/// How long the end of a run waits until no process hits a probe any more. Usually this takes some hundredths of a second.
const CLOSING: Duration = Duration::from_millis(200);

/// Most definitions that the guardian removes unmentioned: it takes one or two seconds, and only a new run notices.
const MOST_UNMENTIONED: usize = 80;

/// Most files that are remembered as refused. Each is counted once.
const MOST_REFUSED: usize = 1 << 20;

/// Descriptors that were opened for a file.
#[derive(Default)]
struct Opened {
    links: Vec<OwnedFd>,
    file: ProbedFile,
}

/// Every probe of a run.
pub struct Probes {
    reach: Reach,
    kind: ProbeKind,
    // Field order matters: descriptors must be closed before the definitions that they keep in use.
    /// Links of programs, with the events that they are on; they reach no traced process.
    links: Vec<OwnedFd>,
    /// Events of the targets' threads, unless the run is for all processes.
    targets: TargetEvents,
    /// Whether the kernel (since 6.12) lets inherited events stay with the task that they were opened for.
    keeps_contexts: bool,
    /// Process id of the guardian, which holds the links.
    guardian_pid: u32,
    /// Sends the guardian links that take long to close.
    guardian: Connection,
    /// Opens events for children, on kernels that need it.
    ties: Ties,
    /// Probed files.
    files: HashMap<FileId, ProbedFile>,
    programs: HashMap<&'static str, OwnedFd>,
    spent: Spent,
    refused: HashSet<FileId>,
    definitions: Definitions,
}

impl Probes {
    /// No probes yet.
    ///
    /// The links belong to the guardian's process, because that allocates nothing; see [`Probes::link`].
    pub fn new(
        tracefs: Tracefs,
        reach: Reach,
        kind: ProbeKind,
        guardian: &Guardian,
    ) -> io::Result<Self> {
        let keeps_contexts = keeps_contexts();
        Ok(Self {
            targets: TargetEvents::new(reach, keeps_contexts),
            keeps_contexts,
            guardian_pid: guardian.pid,
            guardian: guardian.connection()?,
            reach,
            kind,
            links: Vec::new(),
            ties: Ties::default(),
            files: HashMap::new(),
            programs: HashMap::new(),
            spent: Spent::default(),
            refused: HashSet::new(),
            definitions: Definitions::new(tracefs),
        })
    }

    /// Measures the time of a probe hit on this machine, without the time of the kernel programs.
    pub fn measure_hit(&mut self) -> io::Result<Duration> {
        let (hit, open) = calibration::hit(&mut self.definitions)?;
        self.links.extend(open);
        Ok(hit)
    }

    /// Whether a file is probed already.
    pub fn has(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// Whether any file is probed.
    pub fn has_any(&self) -> bool {
        !self.files.is_empty()
    }

    /// Whether one more unprobed file of this owner may be named. The number of names per owner is limited.
    pub fn may_name(&mut self, owner: &Owner) -> bool {
        self.spent.take_name(owner)
    }

    /// How many files were refused.
    pub fn refused(&self) -> u64 {
        self.refused.len() as u64
    }

    /// Defines the probes of an allocator. They reach no process yet, unless the run is for all.
    ///
    /// An error concerns the whole machine and ends the run. A refusal concerns this file alone, which is then not
    /// probed at all. Probes count towards the limit of the file's owner while the file is probed.
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
        self.try_file(program, &allocator.file, allocator.id, &planned, owner)
    }

    /// Defines the probes in the fast path's code in a process. They reach no process yet, unless the run is for all.
    pub fn add_fast_code(
        &mut self,
        program: &mut Program,
        code: &CodeFile,
        probes: &[Probe],
        owner: &Owner,
    ) -> Result<Result<(), Refusal>> {
        let file = code.identity.file;
        if self.has(file) {
            return Ok(Ok(()));
        }
        let planned = plan_fast_code(probes, self.kind);
        self.try_file(program, &code.file, file, &planned, owner)
    }

    fn try_file(
        &mut self,
        program: &mut Program,
        file: &File,
        id: FileId,
        planned: &[Planned],
        owner: &Owner,
    ) -> Result<Result<(), Refusal>> {
        for probe in planned {
            // Checked before anything is attached, so that nothing has to be undone.
            if let Some(why) = unprobeable(file, probe.offset) {
                return Ok(Err(Refusal::Instruction(probe.function.clone(), why)));
            }
            self.load(program, probe.program)?;
        }
        if let Err(refusal) = self.spent.take(owner, planned.len()) {
            return Ok(Err(refusal));
        }
        let first = self.definitions.count();
        let mut opened = Opened::default();
        match self.open_all(file, planned, &mut opened) {
            Ok(()) => {
                self.ties.add(opened.file.events());
                self.links.append(&mut opened.links);
                self.files.insert(id, opened.file);
                Ok(Ok(()))
            }
            Err(refusal) => {
                self.spent.give_back(owner, planned.len());
                // First the events that reach processes: half of an allocator must not be seen.
                close_all(opened.file.take());
                close_all(opened.links);
                self.definitions.remove_from(first);
                Ok(Err(refusal))
            }
        }
    }

    fn open_all(
        &mut self,
        file: &File,
        planned: &[Planned],
        opened: &mut Opened,
    ) -> Result<(), Refusal> {
        self.has_room_for(planned.len())?;
        for probe in planned {
            let refused = |error| Refusal::of_kernel(&probe.function, error);
            let event = self
                .definitions
                .define(file, probe.offset, probe.is_return)
                .map_err(refused)?;
            let program = self.programs.get(probe.program);
            let program = program.ok_or_else(|| refused(io::ErrorKind::NotFound.into()))?;
            opened.links.extend(self.link(event, program, probe)?);
            let for_all = self.reach == Reach::All;
            opened.file.add(event, for_all).map_err(refused)?;
        }
        Ok(())
    }

    /// Refuses a number of probes that would leave too few open files for everything else.
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
    /// A program runs for every process that any perf event of the same definition reaches, so one link
    /// is enough. The link must not be on an inherited event: when the first process that inherited it
    /// exits, the kernel removes the program from all. So the link is on an event of the guardian's process,
    /// which reaches no other. In a run for all, one more event reaches every process.
    fn link(
        &self,
        event: u64,
        program: &OwnedFd,
        probe: &Planned,
    ) -> Result<[OwnedFd; 2], Refusal> {
        let opened = open_for_thread(event, self.guardian_pid);
        let opened = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => Refusal::NoGuardian,
            _ => Refusal::of_kernel(&probe.function, error),
        })?;
        let link = sys::link_perf_event(program.as_fd(), opened.as_fd(), probe.cookie);
        let link = link.map_err(|error| Refusal::of_kernel(&probe.function, error))?;
        Ok([link, opened])
    }

    /// Opens events for new children on kernels that swap the events of relatives; `None` on other kernels.
    pub fn ties(&self) -> Option<Ties> {
        let is_needed = self.reach == Reach::Tree && !self.keeps_contexts;
        is_needed.then(|| self.ties.clone())
    }

    /// Takes over descriptors, to be closed with all others.
    pub fn adopt(&mut self, open: Vec<OwnedFd>) {
        self.targets.adopt(open);
    }

    /// Loads a program, unless it is loaded.
    fn load(&mut self, program: &mut Program, name: &'static str) -> Result<()> {
        if !self.programs.contains_key(name) {
            self.programs.insert(name, program.probe(name)?);
        }
        Ok(())
    }

    /// Lets the probes defined so far reach every thread of a process.
    pub fn add_process(&mut self, pid: u32) -> Result<()> {
        let events = self.files.values().flat_map(ProbedFile::events).copied();
        let events: Vec<u64> = events.collect();
        self.targets.add_process(pid, &events)
    }

    /// Lets the probes of a file reach a process that probes of other files reach, if the process still exists.
    pub fn reach_process(&mut self, file: FileId, pid: u32) -> Result<()> {
        let events = self.files.get(&file).map_or(&[][..], ProbedFile::events);
        self.targets.extend_process(pid, events)
    }

    /// Lets the probes of files reach processes, each alone, if they have mapped the file. Returns the processes for which
    /// that failed. `at_once`: see [`ProbedFile::reach`].
    pub fn reach_each(
        &mut self,
        mapped: &[(u32, HashSet<FileId>)],
        at_once: bool,
    ) -> io::Result<BTreeSet<u32>> {
        let mut failed = BTreeSet::new();
        for (id, file) in &mut self.files {
            let has_it = mapped.iter().filter(|(_, files)| files.contains(id));
            let pids: Vec<u32> = has_it.map(|(pid, _)| *pid).collect();
            if !pids.is_empty() {
                failed.extend(file.reach(&pids, at_once)?);
            }
        }
        Ok(failed)
    }

    /// Lets the probes of a file that only one process has mapped reach that process.
    pub fn reach_alone(&mut self, file: FileId, pid: u32) -> Result<()> {
        match self.reach {
            Reach::All => Ok(()),
            Reach::Tree | Reach::Processes => self.reach_process(file, pid),
            Reach::OneByOne => {
                let mapped = [(pid, HashSet::from([file]))];
                let failed = self.reach_each(&mapped, false)?;
                ensure!(failed.is_empty(), "process {pid} can't have more probes");
                Ok(())
            }
        }
    }

    /// Whether the probes of a file reach a process, or would if it were not paused.
    pub fn reaches(&self, file: FileId, pid: u32) -> bool {
        self.files.get(&file).is_some_and(|file| file.has(pid))
    }

    /// Whether the thread of a process that has its events has ended.
    pub fn has_lost_thread(&self, pid: u32) -> bool {
        self.files.values().any(|file| file.has_lost_thread(pid))
    }

    /// Closes the events of a process that has ended, or whose thread with the events has.
    pub fn leave(&mut self, pid: u32) {
        for file in self.files.values_mut() {
            file.leave(pid);
        }
    }

    /// Pauses exactly these processes, in a run for all. Returns those that are paused only because events of their own
    /// could not be opened.
    pub fn pause(&mut self, pids: &BTreeSet<u32>) -> io::Result<Vec<u32>> {
        if self.reach == Reach::OneByOne {
            for file in self.files.values_mut() {
                file.pause_reached(pids)?;
            }
            return Ok(Vec::new());
        }
        let mut without_events = Vec::new();
        let mapped: HashMap<u32, HashSet<FileId>> =
            pids.iter().map(|pid| (*pid, self.files_of(*pid))).collect();
        for (id, file) in &mut self.files {
            let paused: BTreeSet<u32> = mapped
                .iter()
                .filter(|(_, files)| files.contains(id))
                .map(|(pid, _)| *pid)
                .collect();
            without_events.append(&mut file.pause(paused, self.keeps_contexts)?);
        }
        Ok(without_events)
    }

    /// Opens events for a process that was just started, if it would not be reached because its parent is paused.
    pub fn reach_newborn(&mut self, pid: u32, parent: u32) {
        for file in self.files.values_mut() {
            file.reach_newborn(pid, parent, self.keeps_contexts);
        }
    }

    /// Pauses the targets, in a run for some processes and their descendants.
    pub fn pause_targets(&mut self) {
        if matches!(self.reach, Reach::Tree | Reach::Processes) {
            self.targets.pause();
        }
    }

    /// Resumes a target, or reaches a process that the target has started meanwhile.
    pub fn resume_target(&mut self, pid: u32) -> Result<()> {
        for file in self.files.values() {
            self.targets.extend_process(pid, file.events())?;
        }
        Ok(())
    }

    /// The probed files that a process has mapped.
    pub fn files_of(&self, pid: u32) -> HashSet<FileId> {
        let thread = maps::living_thread(pid);
        let text = maps::read(thread).unwrap_or_default();
        let mut seen = HashSet::new();
        maps::parse(&text)
            .filter(|mapping| mapping.executable && mapping.inode != 0)
            .filter(|mapping| seen.insert((mapping.device, mapping.inode)))
            .filter_map(|mapping| Some(maps::open_mapped(thread, &mapping).ok()?.identity.file))
            .filter(|id| self.has(*id))
            .collect()
    }

    /// How many descriptors of probes are open.
    pub fn count(&self) -> usize {
        let of_files: usize = self.files.values().map(ProbedFile::count).sum();
        self.links.len() + self.targets.count() + of_files
    }

    /// Removes all probes from the processes that they reach, as far as this is quick, and leaves everything else to the
    /// guardian: the kernel removes probes one after the other, some hundredths of a second each. Returns how many
    /// definitions the guardian removes, if that takes long.
    pub fn close(mut self) -> usize {
        self.remove_all()
    }

    fn remove_all(&mut self) -> usize {
        reader::while_none_starts(|| self.remove_or_hand_over())
    }

    fn remove_or_hand_over(&mut self) -> usize {
        let mut reaching = self.targets.take();
        reaching.extend(self.files.values_mut().flat_map(ProbedFile::take));
        // The links reach no process. The guardian closes what it gets in this order.
        let reaching = self.guardian.leave(close_for(CLOSING, reaching));
        close_all(reaching);
        let links = std::mem::take(&mut self.links);
        let all = links.len();
        let links = self.guardian.leave(links);
        let is_left = links.len() < all;
        close_all(links);
        if !is_left {
            return 0;
        }
        self.definitions.leave();
        let left = self.definitions.count();
        if left > MOST_UNMENTIONED { left } else { 0 }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.remove_all();
    }
}
