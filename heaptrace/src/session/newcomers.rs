//! Allocators that come while a run goes on: with a program that a child becomes, or by `dlopen`.
//!
//! Part of the session. What is called between the mapping of a file and its probing is not seen; each
//! such file is counted.

use std::collections::HashSet;
use std::fs::File;

use anyhow::Result;

use super::drain::Drain;
use super::targets;
use crate::config::{NamedAllocator, RunConfig};
use crate::events::sideband::Mapped;
use crate::join::Joiner;
use crate::probes::allocators::{self, FileId, LookFor};
use crate::probes::attach::{Probes, Reach};
use crate::probes::program::Program;
use crate::sys;

/// Most files that are remembered; beyond it nothing new is looked at.
const MAX_SEEN: usize = 1 << 16;

/// Looks at files as they are mapped.
pub(super) struct Newcomers {
    named: Vec<NamedAllocator>,
    mappings: bool,
    seen: HashSet<FileId>,
    /// Whom late probes must reach, where that is not the whole family.
    only: Option<Vec<u32>>,
    is_all: bool,
    late: Vec<FileId>,
    /// When the last of them reached everybody: who was born before may have been missed.
    reached: u64,
}

impl Newcomers {
    pub(super) fn new(config: &RunConfig, first: Vec<u32>) -> Self {
        let reach = targets::reach(config);
        Self {
            named: config.allocators.clone(),
            mappings: config.mappings,
            seen: HashSet::new(),
            only: (reach == Reach::Processes).then_some(first),
            is_all: reach == Reach::All,
            late: Vec::new(),
            reached: 0,
        }
    }

    /// Probes what the processes have mapped since the last call.
    pub(super) fn probe(
        &mut self,
        drain: &mut Drain,
        program: &mut Program,
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
            let found = self.look(pid, &mapped, joiner);
            let Some(found) = found else { continue };
            let new = targets::add_found(found, program, probes, joiner)?;
            // A large program takes a while to look at, and the ring is filled meanwhile.
            drain.pass(joiner);
            for file in new {
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
        }
        joiner.set_noted("allocators_probed_late", self.late.len() as u64);
        Ok(())
    }

    fn look(
        &mut self,
        pid: u32,
        mapped: &Mapped,
        joiner: &mut Joiner,
    ) -> Option<allocators::Found> {
        let (start, end) = (mapped.start, mapped.end);
        let Ok(file) = File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}")) else {
            if allocators::is_allocator(&mapped.path) && !joiner.is_probed(&mapped.build_id) {
                let path = &mapped.path;
                joiner.add_unprobed(format!(
                    "{path}: what mapped it was gone before it could be probed"
                ));
            }
            return None;
        };
        let id = FileId::of(&file).ok()?;
        if self.seen.len() >= MAX_SEEN || !self.seen.insert(id) {
            return None;
        }
        Some(allocators::of_mapped(
            pid,
            file,
            mapped.path.clone(),
            LookFor {
                named: &self.named,
                mappings: self.mappings,
            },
        ))
    }
}
