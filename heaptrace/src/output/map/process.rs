//! The memory map of one process: its blocks and mapped memory beside its pages.
//!
//! Stage: output.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::account::{Account, Recorded, SiteMemory};
use super::pieces::Owned;
use crate::join::{BlockOwner, Family, Kind, MemoryMap, Note, Process, StackId};
use crate::output::filter::Filter;
use crate::output::image::is_of;
use crate::output::report_input::{ReportInput, process_label};
use crate::profile::{MemoryBlocks, ProcessBlocks, Profile};
use crate::text;

/// The memory map of a process.
#[derive(Debug)]
pub struct ProcessMap<'a> {
    /// The program image.
    pub owner: &'a BlockOwner,
    /// What was read of it.
    pub map: &'a MemoryMap,
    /// Its record in the profile, if that has it.
    pub process: Option<&'a Process>,
    /// Its blocks, and the memory that it mapped.
    pub(super) owned: Vec<Owned>,
    /// The allocator of its blocks, if it is certain.
    pub(super) family: Option<Family>,
    is_partial: bool,
    /// Whether another process of the same name is older: it may be a fork of that one.
    may_be_forked: bool,
    /// What its resident memory is made of.
    pub account: Account,
    /// The stacks that filters let pass; `None` for all.
    shown: Option<HashSet<(StackId, Kind)>>,
}

/// The memory maps of processes that pass the filters, those with most resident memory first.
pub fn process_maps<'a>(
    input: &ReportInput<'a>,
    processes: &'a [ProcessBlocks],
    pid: Option<u32>,
) -> Vec<ProcessMap<'a>> {
    let is_wanted = |it: &&ProcessBlocks| pid.is_none_or(|pid| it.owner.pid == pid);
    let maps = processes.iter().filter(is_wanted);
    let maps = maps.filter_map(|it| ProcessMap::new(input, &it.owner, it.memory.as_ref()?));
    let mut maps: Vec<_> = maps.collect();
    maps.sort_by_key(|it| Reverse(it.map.residency.resident));
    maps
}

/// The number of processes with recorded blocks whose memory was never read.
pub(in crate::output) fn not_read(profile: &Profile) -> u64 {
    let noted = &profile.quality.noted;
    noted.get(Note::MemoryNotRead.name()).copied().unwrap_or(0)
}

impl<'a> ProcessMap<'a> {
    /// The map of a process; `None` if filters leave it out.
    fn new(
        input: &ReportInput<'a>,
        owner: &'a BlockOwner,
        memory: &'a MemoryBlocks,
    ) -> Option<Self> {
        let map = &memory.map;
        let mut processes = input.profile.processes.iter().enumerate();
        let found = processes.rfind(|(_, it)| is_of(it, owner));
        if found.is_none() && !input.filters.is_empty() {
            return None;
        }
        let process = found.map(|(_, process)| process);
        let blocks = memory.blocks.iter().map(|it| Owned {
            address: it.address,
            size: it.size,
            stack: it.stack,
            kind: Kind::Heap,
            born_ns: it.born_ns,
            mean: it.mean,
        });
        let mapped = map.mapped.iter().map(|it| Owned {
            address: it.start,
            size: it.end.saturating_sub(it.start),
            stack: it.stack,
            kind: Kind::Mapped,
            born_ns: 0,
            mean: 0,
        });
        let owned: Vec<Owned> = blocks.chain(mapped).collect();
        let family = process.and_then(family_of);
        let is_partial = input.profile.info.is_partial();
        let recorded = Recorded { family, is_partial };
        let may_be_forked = input.profile.processes.iter().any(|it| {
            it.pid != owner.pid
                && it.command == owner.command
                && (it.merged > 0 || it.start_time_ns < owner.start_time_ns)
        });
        let selects = input.filters.iter().any(Filter::selects_sites);
        let shown = found.filter(|_| selects).map(|(index, _)| {
            let sites = input.profile.sites.iter();
            let sites = sites.filter(|site| site.process.0 as usize == index);
            sites.map(|site| (site.stack, site.kind)).collect()
        });
        Some(Self {
            owner,
            map,
            process,
            account: Account::new(&map.residency, &owned, recorded),
            owned,
            family,
            is_partial,
            may_be_forked,
            shown,
        })
    }

    /// The name of the process, as people write it. Safe to print.
    pub fn label(&self) -> String {
        match self.process {
            Some(process) => process_label(process),
            None => {
                let owner = self.owner;
                format!("{} ({})", text::escape(&owner.command), owner.pid)
            }
        }
    }

    /// The name of the allocator, if it is certain.
    pub fn allocator(&self) -> Option<&'static str> {
        self.family.map(Family::name)
    }

    /// The bytes that the allocator has before each block.
    pub fn header(&self) -> u64 {
        super::pieces::header(self.family)
    }

    /// Whether it can have blocks that are not known: from before it was traced, from a parent that it is a fork of, or from pauses.
    pub fn is_older(&self) -> bool {
        self.may_be_forked
            || self.process.is_none_or(|it| {
                it.memory.resident_before > 0
                    || it.traced.is_some()
                    || it.duty_cycle.is_some()
                    || (!self.is_partial && it.untracked_frees > 0)
            })
    }

    /// Whether only a part of all blocks was recorded: samples, or some sizes.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// All sites with memory of a kind.
    pub fn sites_of(&self, kind: Kind) -> impl Iterator<Item = &SiteMemory> {
        let sites = self.account.sites.iter();
        sites.filter(move |it| it.kind == kind)
    }

    /// The sites that filters let pass.
    pub fn sites(&self) -> impl Iterator<Item = &SiteMemory> {
        let sites = self.account.sites.iter();
        sites.filter(|it| self.is_shown(it.stack, it.kind))
    }

    /// Whether filters let a site pass.
    pub(super) fn is_shown(&self, stack: StackId, kind: Kind) -> bool {
        let shown = self.shown.as_ref();
        shown.is_none_or(|shown| shown.contains(&(stack, kind)))
    }
}

/// The allocator of a process. One that replaces that of the C library serves its blocks.
fn family_of(process: &Process) -> Option<Family> {
    let kinds = process.allocators.iter();
    let mut families: Vec<_> = kinds.filter_map(|it| Family::of_kind(&it.kind)).collect();
    families.sort_unstable();
    families.dedup();
    if families.len() > 1 {
        families.retain(|it| *it != Family::Glibc);
    }
    match families[..] {
        [one] => Some(one),
        _ => None,
    }
}
