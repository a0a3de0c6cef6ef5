//! Allocators that come while a run goes on: with a program that a child becomes, or by `dlopen`.
//!
//! Part of the session. What is called between the mapping of a file and its probing is not seen; each
//! such file is counted.

use std::collections::HashSet;

use anyhow::Result;

use super::drain::Drain;
use super::scanner::{self, Scanner};
use super::targets;
use crate::config::RunConfig;
use crate::events::sideband::Mapped;
use crate::join::Joiner;
use crate::open::{self, FileId};
use crate::probes::allocators::{self, Found};
use crate::probes::attach::{Probes, Reach};
use crate::probes::program::Program;
use crate::reader::Budget;
use crate::sys;

/// Most files that are remembered; beyond it nothing new is looked at.
const MAX_SEEN: usize = 1 << 16;

/// Looks at files as they are mapped.
pub(super) struct Newcomers {
    scanner: Scanner,
    seen: HashSet<FileId>,
    /// Whom late probes must reach, where that is not the whole family.
    only: Option<Vec<u32>>,
    is_all: bool,
    late: Vec<FileId>,
    /// When the last of them reached everybody: who was born before may have been missed.
    reached: u64,
}

impl Newcomers {
    pub(super) fn new(config: &RunConfig, first: Vec<u32>, budget: &Budget) -> Result<Self> {
        let reach = targets::reach(config);
        Ok(Self {
            scanner: Scanner::new(config, budget)?,
            seen: HashSet::new(),
            only: (reach == Reach::Processes).then_some(first),
            is_all: reach == Reach::All,
            late: Vec::new(),
            reached: 0,
        })
    }

    /// Has the files looked into that processes have mapped since the last call, and reaches children that the last
    /// probes may have missed.
    pub(super) fn look(
        &mut self,
        drain: &mut Drain,
        probes: &mut Probes,
        joiner: &mut Joiner,
    ) -> Result<()> {
        for (pid, parent, born) in drain.take_births() {
            if self.is_all {
                probes.reach_newborn(pid, parent);
            }
            if born <= self.reached && self.only.is_none() && !self.is_all {
                for file in &self.late {
                    probes.reach_process(*file, pid)?;
                }
            }
        }
        for (pid, mapped) in drain.take_mapped() {
            self.look_into(pid, mapped, joiner);
        }
        self.note(joiner);
        Ok(())
    }

    fn look_into(&mut self, pid: u32, mapped: Mapped, joiner: &mut Joiner) {
        let path = mapped.path;
        let opened = open::mapped(pid, mapped.start, mapped.end, Some(mapped.file));
        let Ok(file) = opened else {
            if allocators::is_allocator(&path) && !joiner.is_probed(&mapped.file) {
                joiner.add_unprobed(format!(
                    "{path}: what mapped it was gone before it could be probed"
                ));
            }
            return;
        };
        let id = file.identity.file;
        if self.seen.contains(&id) || self.seen.len() >= MAX_SEEN {
            return;
        }
        if self.scanner.look(scanner::Mapped { pid, file, path }) {
            self.seen.insert(id);
        }
    }

    /// Waits for what is in the next file.
    pub(super) async fn found(&mut self) -> Found {
        self.scanner.found().await
    }

    /// Probes what was found.
    pub(super) fn probe(
        &mut self,
        found: Found,
        drain: &mut Drain,
        program: &mut Program,
        probes: &mut Probes,
        joiner: &mut Joiner,
    ) -> Result<()> {
        for file in targets::add_found(found, Some(drain), program, probes, joiner)? {
            if !self.is_all {
                let pids = match &self.only {
                    Some(only) => only.clone(),
                    None => joiner.followed(),
                };
                for pid in pids {
                    probes.reach_process(file, pid)?;
                }
            }
            self.late.push(file);
            self.reached = sys::monotonic_now();
        }
        self.note(joiner);
        Ok(())
    }

    fn note(&self, joiner: &mut Joiner) {
        joiner.set_noted("allocators_probed_late", self.late.len() as u64);
        joiner.set_noted("files_not_looked_into", self.scanner.waiting() as u64);
    }
}
