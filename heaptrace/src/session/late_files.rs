//! Allocators that come while a run goes on: with a program that a child becomes, or by `dlopen`.
//!
//! Part of the session. What is called between the mapping of a file and its probing is not seen; each
//! such file is counted. A file that can't be probed, and a process that can't be reached, is noted, and the run goes on.

use std::collections::HashSet;

use anyhow::Result;

use super::drain::Drain;
use super::scanner::{self, Scanned, Scanner};
use super::targets;
use crate::config::RunConfig;
use crate::events::sideband::Mapped;
use crate::join::{Joiner, Loss, Note};
use crate::kernel::program::Program;
use crate::open::{self, Expected, FileId, Identity};
use crate::probes::allocators;
use crate::probes::attach::{Probes, Reach};
use crate::proc::owner::Owner;
use crate::reader::Budget;
use crate::sys;

/// Most files that are remembered. Beyond it they are forgotten, and looked into again.
const MAX_SEEN: usize = 1 << 16;

/// How many files are opened before the streams are read again.
const BETWEEN_PASSES: usize = 32;

/// Looks at files as they are mapped.
pub(super) struct LateFiles {
    scanner: Scanner,
    seen: HashSet<Identity>,
    /// Files that were seen, by what the kernel says of them: for those that are gone before they can be opened.
    called: HashSet<Expected>,
    /// Whom late probes must reach, where that is not the whole family.
    only: Option<Vec<u32>>,
    is_all: bool,
    late: Vec<FileId>,
    /// When the last of them reached everybody: who was born before may have been missed.
    reached: u64,
    /// Files that were gone, or could not be opened, before they were looked into.
    unopened: u64,
    /// Processes that late probes could not reach.
    unreached: u64,
}

impl LateFiles {
    pub(super) fn new(config: &RunConfig, first: Vec<u32>, budget: &Budget) -> Result<Self> {
        let reach = targets::reach(config);
        Ok(Self {
            scanner: Scanner::new(config, budget)?,
            seen: HashSet::new(),
            called: HashSet::new(),
            only: (reach == Reach::Processes).then_some(first),
            is_all: reach == Reach::All,
            late: Vec::new(),
            reached: 0,
            unopened: 0,
            unreached: 0,
        })
    }

    /// Has the files looked into that processes have mapped since the last call, and reaches children that the last
    /// probes may have missed.
    pub(super) fn look(&mut self, drain: &mut Drain, probes: &mut Probes, joiner: &mut Joiner) {
        for (pid, parent, born) in drain.take_births() {
            if self.is_all {
                probes.reach_newborn(pid, parent);
            }
            if born <= self.reached && self.only.is_none() && !self.is_all {
                for file in &self.late {
                    reach(probes, *file, pid, &mut self.unreached);
                }
            }
        }
        let mut looked = 0;
        while let Some((owner, (pid, mapped))) = drain.take_mapped() {
            self.look_into(owner, pid, mapped, joiner);
            looked += 1;
            // A process can map files faster than they are opened here; what others do meanwhile must not be lost.
            if looked % BETWEEN_PASSES == 0 {
                drain.pass(joiner);
            }
        }
        self.note(drain, joiner);
    }

    fn look_into(&mut self, owner: Owner, pid: u32, mapped: Mapped, joiner: &mut Joiner) {
        let path = mapped.path;
        let opened = open::mapped(pid, mapped.start, mapped.end, Some(mapped.file));
        let Ok(file) = opened else {
            if !joiner.is_probed(&mapped.file) && !self.called.contains(&mapped.file) {
                self.unopened += 1;
                if allocators::is_allocator(&path) {
                    joiner.add_unprobed(format!(
                        "{path}: what mapped it was gone before it could be probed"
                    ));
                }
            }
            return;
        };
        if self.seen.len() >= MAX_SEEN {
            self.seen.clear();
        }
        if self.called.len() >= MAX_SEEN {
            self.called.clear();
        }
        if self.seen.insert(file.identity) {
            self.called.insert(mapped.file);
            self.scanner
                .look(owner, scanner::Mapped { pid, file, path });
        }
    }

    /// Waits for what is in the next file.
    pub(super) async fn found(&mut self) -> Scanned {
        self.scanner.found().await
    }

    /// Probes what was found.
    pub(super) fn probe(
        &mut self,
        scanned: Scanned,
        drain: &mut Drain,
        program: &mut Program,
        probes: &mut Probes,
        joiner: &mut Joiner,
    ) -> Result<()> {
        let Scanned { owner, found } = scanned;
        for file in targets::add_found(found, &owner, Some(drain), program, probes, joiner)? {
            if !self.is_all {
                let pids = match &self.only {
                    Some(only) => only.clone(),
                    None => joiner.followed(),
                };
                for pid in pids {
                    reach(probes, file, pid, &mut self.unreached);
                }
            }
            self.late.push(file);
            self.reached = sys::monotonic_now();
        }
        self.note(drain, joiner);
        Ok(())
    }

    fn note(&self, drain: &Drain, joiner: &mut Joiner) {
        let left_out = self.scanner.left_out() + drain.left_out();
        joiner.set_noted(Note::AllocatorsProbedLate, self.late.len() as u64);
        joiner.set_noted(Note::FilesNotLookedInto, self.scanner.waiting() + left_out);
        joiner.set_noted(Note::FilesGoneUnseen, self.unopened);
        // Whatever these files allocate may be missing in every number.
        joiner.set_lost(Loss::Files, left_out);
        joiner.set_lost(Loss::ProcessesUnreached, self.unreached);
    }
}

/// Lets the probes of a file reach a process.
fn reach(probes: &mut Probes, file: FileId, pid: u32, unreached: &mut u64) {
    if let Err(error) = probes.reach_process(file, pid) {
        tracing::warn!("{error:#}");
        *unreached += 1;
    }
}
