//! Sites made of single blocks, for filters that choose blocks.
//!
//! Stage: output. Finds the process and the site of each sum of blocks. Must not know filters.

use std::collections::HashMap;

use crate::join::{
    BlockOwner, BlockSums, Kind, OwnPeak, Process, ProcessId, Site, SiteId, StackId, Totals,
};
use crate::profile::{BlockList, Profile};

/// Blocks of a site that meet the same conditions.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlocksOfSite {
    /// The index of the site.
    pub(super) site: usize,
    /// A bit for each condition that they meet.
    pub(super) met: u64,
    pub(super) sums: BlockSums,
}

/// Finds the sites of blocks. Images and stacks without one get one, so that no block is left out.
pub(super) fn find(profile: &mut Profile, blocks: &BlockList) -> Vec<BlocksOfSite> {
    let mut of_stacks: HashMap<(ProcessId, StackId), usize> = HashMap::new();
    let mut shared = Vec::new();
    for (index, site) in profile.sites.iter().enumerate() {
        if site.kind == Kind::Heap {
            let first = of_stacks.entry((site.process, site.stack)).or_insert(index);
            if *first != index {
                shared.push(*first);
            }
        }
    }
    // Blocks have the number of their thread, not its name, so threads of several names can't be told apart.
    for index in shared {
        if let Some(site) = profile.sites.get_mut(index) {
            site.thread = None;
        }
    }
    let mut found = Vec::new();
    for image in &blocks.processes {
        let mut processes = records_of(profile, &image.owner);
        if processes.is_empty() && !image.classes.is_empty() {
            processes.push(ProcessId(profile.processes.len() as u32));
            profile.processes.push(Process {
                pid: image.owner.pid,
                start_time_ns: image.owner.start_time_ns,
                command: image.owner.command.clone(),
                ended: image.ended_ns.is_some(),
                ..Process::default()
            });
        }
        for class in &image.classes {
            let mut known = processes.iter();
            let known = known.find_map(|process| of_stacks.get(&(*process, class.stack)));
            let site = match (known, processes.first()) {
                (Some(index), _) => *index,
                (None, Some(process)) => {
                    let index = profile.sites.len();
                    profile.sites.push(without_blocks(*process, class.stack));
                    of_stacks.insert((*process, class.stack), index);
                    index
                }
                (None, None) => continue,
            };
            found.push(BlocksOfSite {
                site,
                met: class.met,
                sums: class.sums,
            });
        }
    }
    found
}

/// The records of an image: its own, or the one that stands for ended processes of its name.
fn records_of(profile: &Profile, owner: &BlockOwner) -> Vec<ProcessId> {
    let all = || (0..).map(ProcessId).zip(&profile.processes);
    let of_process = |it: &Process| {
        it.merged == 0 && (it.pid, it.start_time_ns) == (owner.pid, owner.start_time_ns)
    };
    let merged_as = |name: &str, it: &Process| it.merged > 0 && it.command == name;
    let mut own: Vec<_> = all().filter(|(_, it)| of_process(it)).collect();
    // An `exec` begins another record of the same process, mostly with another name.
    own.sort_by_key(|(_, it)| it.command != owner.command);
    if own.is_empty() {
        own = all()
            .filter(|(_, it)| merged_as(&owner.command, it))
            .collect();
    }
    if own.is_empty() {
        own = all().filter(|(_, it)| merged_as("(others)", it)).collect();
    }
    own.into_iter().map(|(id, _)| id).collect()
}

/// A site of the heap that has nothing yet.
fn without_blocks(process: ProcessId, stack: StackId) -> Site {
    Site {
        process,
        stack,
        thread: None,
        kind: Kind::Heap,
        totals: Totals::default(),
        own_peak: OwnPeak::default(),
        block_sizes: None,
        slot: SiteId(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{BlockClass, ProcessBlocks, RunInfo};

    fn process(pid: u32, command: &str, merged: u64) -> Process {
        Process {
            pid,
            command: command.to_owned(),
            merged,
            ..Process::default()
        }
    }

    fn image(pid: u32, command: &str, stacks: &[u32]) -> ProcessBlocks {
        let class = |stack: &u32| BlockClass {
            stack: StackId(*stack),
            met: 1,
            sums: BlockSums::default(),
        };
        ProcessBlocks {
            owner: BlockOwner {
                pid,
                command: command.to_owned(),
                ..BlockOwner::default()
            },
            classes: stacks.iter().map(class).collect(),
            ..ProcessBlocks::default()
        }
    }

    /// Check that blocks come to the record of their image, also after an `exec`, after the image was merged with others, and if it has no
    /// record; and that names of threads are dropped where they can't be told apart.
    #[test]
    fn blocks_find_their_sites() {
        let mut profile = Profile::new(RunInfo::exact("--all"));
        profile.processes = vec![
            process(7, "sh", 0),
            process(7, "make", 0),
            process(0, "cc", 3),
            process(0, "(others)", 9),
        ];
        let site = |process, stack, thread| Site {
            thread: Some(crate::join::ThreadNameId(thread)),
            ..without_blocks(ProcessId(process), StackId(stack))
        };
        profile.sites = vec![site(0, 0, 0), site(1, 0, 0), site(1, 0, 1), site(2, 1, 0)];
        let blocks = BlockList {
            processes: vec![
                image(7, "make", &[0, 2]),
                image(8, "cc", &[1]),
                image(9, "ld", &[0]),
            ],
            ..BlockList::default()
        };
        let found = find(&mut profile, &blocks);
        let sites: Vec<_> = found.iter().map(|it| it.site).collect();
        assert_eq!(sites, [1, 4, 3, 5]);
        let of = |index: usize| (profile.sites[index].process.0, profile.sites[index].stack.0);
        assert_eq!([of(4), of(5)], [(1, 2), (3, 0)]);
        assert_eq!(profile.sites[1].thread, None);
        assert!(profile.sites[3].thread.is_some());

        profile.processes.truncate(2);
        let added = find(&mut profile, &blocks);
        assert_eq!(added.len(), found.len());
        let names: Vec<_> = profile.processes.iter().map(|it| &it.command[..]).collect();
        assert_eq!(names, ["sh", "make", "cc", "ld"]);
    }
}
