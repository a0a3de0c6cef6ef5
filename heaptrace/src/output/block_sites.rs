//! Sites made of single blocks, for filters that choose blocks.
//!
//! Stage: output. Finds the process and the site of each sum of blocks. Must not know filters.

use std::collections::HashMap;

use crate::join::{BlockSums, Kind, Process, ProcessId, Site, SiteId, StackId};
use crate::profile::{BlockList, ProcessBlocks, Profile};

/// Most records in which the sites of an image are looked for: the images of a process, or the groups in which ended processes of a name ran.
const MOST_RECORDS: usize = 64;

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
    let mut records = Records::of(profile);
    let mut found = Vec::new();
    for image in &blocks.processes {
        let mut processes = records.find(profile, image);
        if processes.is_empty() && !image.classes.is_empty() {
            let id = ProcessId(profile.processes.len() as u32);
            processes.push(id);
            records.add_own(image.owner.pid, image.owner.start_time_ns, id);
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

/// The records of a profile, to find those of an image: a file can have many of both.
#[derive(Default)]
struct Records {
    /// By process id and start.
    own: HashMap<(u32, u64), Vec<ProcessId>>,
    /// Those that stand for many ended processes, by name.
    merged: HashMap<String, Vec<ProcessId>>,
}

impl Records {
    fn of(profile: &Profile) -> Self {
        let mut records = Self::default();
        for (id, it) in (0..).map(ProcessId).zip(&profile.processes) {
            if it.merged == 0 {
                records.add_own(it.pid, it.start_time_ns, id);
            } else {
                add(records.merged.entry(it.command.clone()).or_default(), id);
            }
        }
        records
    }

    fn add_own(&mut self, pid: u32, start_time_ns: u64, id: ProcessId) {
        add(self.own.entry((pid, start_time_ns)).or_default(), id);
    }

    /// The records of an image: its own, or the one that stands for ended processes of its name.
    fn find(&self, profile: &Profile, image: &ProcessBlocks) -> Vec<ProcessId> {
        let owner = &image.owner;
        let Some(own) = self.own.get(&(owner.pid, owner.start_time_ns)) else {
            let merged = self.merged.get(&owner.command);
            let merged = merged.or_else(|| self.merged.get("(others)"));
            return merged.cloned().unwrap_or_default();
        };
        let mut own = own.clone();
        // An `exec` begins another record of the same process, mostly with another name.
        own.sort_by_key(|id| {
            let record = profile.processes.get(id.0 as usize);
            record.map_or((true, true), |it| {
                let is_other = it.command != owner.command;
                (is_other, it.ended != image.ended_ns.is_some())
            })
        });
        own
    }
}

fn add(records: &mut Vec<ProcessId>, id: ProcessId) {
    if records.len() < MOST_RECORDS {
        records.push(id);
    }
}

/// A site of the heap that has nothing yet.
fn without_blocks(process: ProcessId, stack: StackId) -> Site {
    Site::of_heap(process, stack, SiteId(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::BlockOwner;
    use crate::profile::{BlockClass, RunInfo};

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
            is_freed: false,
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
