//! Files that processes map while a run is under way: programs that a child executes, and libraries (`dlopen`).
//!
//! Part of the session. A late file is scanned for allocators, and probed. Calls between the mapping of a
//! file and its probing are not seen; each such file is counted. A file that can't be probed, and a process
//! that can't be reached, is reported, and the run continues. Must not know how files are scanned or probed.

use std::collections::HashSet;

use anyhow::Result;

use super::attach::{self, Streams};
use super::run::Run;
use super::scanner::{self, Scanned, Scanner};
use super::seen_files::SeenFiles;
use super::targets;
use crate::config::RunConfig;
use crate::events::sideband::Mapped;
use crate::join::{Joiner, Loss, Note};
use crate::open::{self, Expected, FileId, Opened};
use crate::probes::attach::Probes;
use crate::probes::target_events::Reach;
use crate::proc::library_names::is_allocator;
use crate::proc::owner::Owner;
use crate::reader::Budget;
use crate::sys;

/// How many files are opened before the streams are read again.
const BETWEEN_PASSES: usize = 32;

/// Scans and probes files as they are mapped.
pub(super) struct LateFiles {
    scanner: Scanner,
    seen: SeenFiles,
    reach: Reach,
    /// The processes that are probed from the beginning.
    targets: Vec<u32>,
    late: Vec<FileId>,
    /// When the last late file was probed. A process that was born before may have been missed.
    reached: u64,
    /// Files that were gone, or could not be opened, before they were scanned.
    unopened: u64,
    /// Processes that late probes could not reach.
    unreached: u64,
}

impl LateFiles {
    pub(super) fn new(config: &RunConfig, targets: Vec<u32>, budget: &Budget) -> Result<Self> {
        Ok(Self {
            scanner: Scanner::new(config, budget)?,
            seen: SeenFiles::new(),
            reach: targets::reach(config),
            targets,
            late: Vec::new(),
            reached: 0,
            unopened: 0,
            unreached: 0,
        })
    }

    /// Sends the files that were mapped since the last call to the scanner, and reaches children that the
    /// last late probes may have missed.
    pub(super) fn look(&mut self, run: &mut Run) {
        self.reach_children(run);
        let mut looked = 0;
        while let Some((owner, pid, mapped)) = run.drain.take_mapped() {
            self.scan(owner, pid, mapped, run);
            looked += 1;
            // A process can map files faster than they are opened here. The events of others must not be lost
            // meanwhile.
            if looked % BETWEEN_PASSES == 0 {
                run.pass();
            }
        }
        self.report(run);
    }

    fn reach_children(&mut self, run: &mut Run) {
        for birth in run.drain.take_births() {
            match self.reach {
                Reach::All => run.probes.reach_newborn(birth.pid, birth.parent),
                Reach::Tree if birth.time <= self.reached => {
                    for file in &self.late {
                        reach(&mut run.probes, *file, birth.pid, &mut self.unreached);
                    }
                }
                Reach::Tree | Reach::OneByOne | Reach::Processes => {}
            }
        }
    }

    /// Records that a file was searched for allocators already.
    pub(super) fn add_seen(&mut self, file: &Opened, expected: Expected) {
        self.seen.insert(file.identity, expected);
    }

    /// Whether a file was searched for allocators, or will be.
    pub(super) fn has_seen(&self, file: &Opened) -> bool {
        self.seen.has(&file.identity)
    }

    /// Files that have been mapped and were not searched yet.
    pub(super) fn waiting(&self) -> u64 {
        self.scanner.waiting()
    }

    /// Sends a file to the scanner, unless it was searched already.
    pub(super) fn search_new(&mut self, owner: Owner, mapped: scanner::Mapped, expected: Expected) {
        if self.seen.insert(mapped.file.identity, expected) {
            self.scanner.scan(owner, mapped);
        }
    }

    /// Sends a file to the scanner, unless it was searched already. In a run that reaches processes one by one, the probes of
    /// a probed file reach the process.
    pub(super) fn search(
        &mut self,
        owner: Owner,
        mapped: scanner::Mapped,
        expected: Expected,
        run: &mut Run,
    ) {
        let (pid, identity) = (mapped.pid, mapped.file.identity);
        self.search_new(owner, mapped, expected);
        if self.reach == Reach::OneByOne
            && run.probes.has(identity.file)
            && !run.probes.reaches(identity.file, pid)
        {
            self.reach_mapping(&[(pid, HashSet::from([identity.file]))], run);
        }
    }

    /// Lets probed files reach the processes that have mapped them.
    fn reach_mapping(&mut self, mapped: &[(u32, HashSet<FileId>)], run: &mut Run) {
        match run.during(|_, probes| probes.reach_each(mapped, false)) {
            Ok(Ok(failed)) => self.unreached += failed.len() as u64,
            Ok(Err(error)) => {
                tracing::warn!("{error}");
                self.unreached += mapped.len() as u64;
            }
            Err(error) => tracing::warn!("{error:#}"),
        }
    }

    fn scan(&mut self, owner: Owner, pid: u32, mapped: Mapped, run: &mut Run) {
        let path = mapped.path;
        let opened = open::mapped(pid, mapped.start, mapped.end, Some(mapped.file));
        let Ok(file) = opened else {
            if !run.joiner.is_probed(&mapped.file) && !self.seen.contains(&mapped.file) {
                self.unopened += 1;
                if is_allocator(&path) {
                    run.joiner.add_unprobed(format!(
                        "{path}: its mapping was gone before it could be probed"
                    ));
                }
            }
            return;
        };
        let found = scanner::Mapped { pid, file, path };
        self.search(owner, found, mapped.file, run);
    }

    /// Waits until the next file is scanned.
    pub(super) async fn scanned(&mut self) -> Scanned {
        self.scanner.scanned().await
    }

    /// Probes the allocators of a scanned file.
    pub(super) fn probe(&mut self, scanned: Scanned, run: &mut Run) -> Result<()> {
        let Scanned { owner, found } = scanned;
        let new = attach::add_found(found, &owner, Streams::Read, run)?;
        if self.reach == Reach::OneByOne && !new.is_empty() {
            let pids = run.joiner.reached();
            let of_each = |probes: &mut Probes| {
                let files = pids.iter().map(|pid| (*pid, probes.files_of(*pid)));
                files.collect::<Vec<_>>()
            };
            let mapped = run.during(|_, probes| of_each(probes))?;
            self.reach_mapping(&mapped, run);
        }
        for file in new {
            let pids = match self.reach {
                Reach::All | Reach::OneByOne => Vec::new(),
                Reach::Tree => run.joiner.followed(),
                Reach::Processes => self.targets.clone(),
            };
            for pid in pids {
                reach(&mut run.probes, file, pid, &mut self.unreached);
            }
            // A process that is reached later has its own time from which on it is traced.
            if self.reach != Reach::OneByOne {
                self.late.push(file);
            }
            self.reached = sys::monotonic_now();
        }
        self.report(run);
        Ok(())
    }

    fn report(&self, run: &mut Run) {
        let counts = Counts {
            probed_late: self.late.len() as u64,
            waiting: self.waiting(),
            dropped: self.scanner.dropped() + run.drain.dropped_files(),
            unopened: self.unopened,
            forgotten: self.seen.forgotten(),
            processes_unreached: self.unreached,
        };
        counts.report(&mut run.joiner);
    }
}

/// The numbers of late files, as reports show them.
struct Counts {
    probed_late: u64,
    /// Files that wait for the scanner.
    waiting: u64,
    /// Files that found no room in the queue of mapped files, or in the scanner's queue.
    dropped: u64,
    unopened: u64,
    /// Seen files that were forgotten for want of room.
    forgotten: u64,
    processes_unreached: u64,
}

impl Counts {
    fn report(&self, joiner: &mut Joiner) {
        joiner.set_noted(Note::AllocatorsProbedLate, self.probed_late);
        joiner.set_noted(Note::FilesNotLookedInto, self.waiting + self.dropped);
        joiner.set_noted(Note::FilesGoneUnseen, self.unopened);
        joiner.set_noted(Note::FilesForgotten, self.forgotten);
        // The allocations through dropped files may be missing in every number.
        joiner.set_lost(Loss::Files, self.dropped);
        joiner.set_lost(Loss::ProcessesUnreached, self.processes_unreached);
    }
}

/// Lets the probes of a file reach a process.
fn reach(probes: &mut Probes, file: FileId, pid: u32, unreached: &mut u64) {
    if let Err(error) = probes.reach_process(file, pid) {
        tracing::warn!("{error:#}");
        *unreached += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{EndedLimits, Follow};

    /// Check that each kind of file that is not probed in time is reported under its own reason.
    #[test]
    fn each_count_is_reported() {
        let mut joiner = Joiner::new(Follow::All, EndedLimits::within(1 << 30));
        let counts = Counts {
            probed_late: 1,
            waiting: 2,
            dropped: 3,
            unopened: 4,
            forgotten: 5,
            processes_unreached: 6,
        };
        counts.report(&mut joiner);
        let quality = joiner.take_update(1).quality;
        for (reason, count) in [
            ("allocators_probed_late", 1),
            ("files_not_looked_into", 5),
            ("files_gone_unseen", 4),
            ("files_forgotten", 5),
        ] {
            assert_eq!(quality.noted.get(reason), Some(&count), "{reason}");
        }
        for (reason, count) in [("files", 3), ("processes_unreached", 6)] {
            assert_eq!(quality.lost.get(reason), Some(&count), "{reason}");
        }
    }
}
