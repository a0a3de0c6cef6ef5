//! The control groups whose limit of memory a process was killed at.
//!
//! Stage: join. The group of a process, and what the kernel has counted there, are read when it begins: when it has been killed, it may
//! have no group any more. Must not know how groups are read.

use std::sync::Arc;

use super::end::KilledAt;
use super::keyed_hash::HashMap;
use crate::proc::group_text::GroupText;
use crate::proc::memory_limit::{GroupMemory, MemoryHierarchy};

/// Most groups whose counters are kept, and most processes.
const MAX_GROUPS: usize = 8192;
const MAX_PROCESSES: usize = 1 << 16;

/// The memory of control groups when processes began there.
#[derive(Debug, Default)]
pub(super) struct MemoryGroups {
    /// The hierarchy; the inner `None` if there is none, the outer one before the first search.
    hierarchy: Option<Option<MemoryHierarchy>>,
    /// What was read of groups and those above them, the innermost first, since the last kill.
    read: HashMap<String, Arc<[GroupMemory]>>,
    /// The groups of running processes, by serial number, with what was known of them when they began.
    of: HashMap<u64, (String, Arc<[GroupMemory]>)>,
}

impl MemoryGroups {
    /// Remembers the group of a process that has just begun. The path is that of its unified group, if it has one, which is known also if the
    /// process is gone.
    pub(super) fn begin(&mut self, serial: u64, groups: &mut GroupText, unified: &str) {
        let hierarchy = self.hierarchy.get_or_insert_with(MemoryHierarchy::find);
        let Some(hierarchy) = hierarchy.as_ref() else {
            return;
        };
        if self.of.len() >= MAX_PROCESSES {
            return;
        }
        let is_known = hierarchy.is_unified() && !unified.is_empty();
        let group = match is_known {
            true => None,
            false => hierarchy.group_in(groups.get()).filter(|it| *it != "/"),
        };
        let group = group.unwrap_or(unified).to_owned();
        let first = match self.read.get(&group) {
            Some(first) => Arc::clone(first),
            None => {
                if self.read.len() >= MAX_GROUPS {
                    self.read.clear();
                }
                let levels = MemoryHierarchy::levels(&group);
                let first: Arc<[_]> = levels
                    .map(|level| hierarchy.read(level).unwrap_or_default())
                    .collect();
                self.read.insert(group.clone(), Arc::clone(&first));
                first
            }
        };
        self.of.insert(serial, (group, first));
    }

    /// Forgets a process. If the kernel has killed it for lack of memory, returns the group whose limit was reached; `None` if that was
    /// none, or is not known.
    pub(super) fn end(&mut self, serial: u64, is_killed: bool) -> Option<KilledAt> {
        let (group, first) = self.of.remove(&serial)?;
        let hierarchy = self.hierarchy.as_ref()?.as_ref()?;
        if !is_killed {
            return None;
        }
        // Processes that begin after this kill count from then on.
        self.read.clear();
        let levels = || MemoryHierarchy::levels(&group);
        let now = levels().filter_map(|level| Some((level, hierarchy.read(level)?)));
        at_limit(now, |level| {
            let mut known = levels().zip(&*first);
            known.find(|it| it.0 == level).map(|it| *it.1)
        })
    }
}

/// The innermost group that reached its limit since its first state. If that was not counted, the innermost one that was full at any time;
/// and if nothing was counted since, the first state is from after the kill: then the innermost one that reached its limit before.
fn at_limit<'g>(
    now: impl Iterator<Item = (&'g str, GroupMemory)>,
    first: impl Fn(&str) -> Option<GroupMemory>,
) -> Option<KilledAt> {
    let levels: Vec<_> = now
        .map(|(group, memory)| (group, first(group).unwrap_or(memory), memory))
        .collect();
    let mut limited = levels.iter().filter(|(_, _, now)| now.limit.is_some());
    let grown = limited
        .clone()
        .find(|(_, first, now)| now.refused > first.refused);
    let is_newer = levels.iter().any(|(_, first, now)| now.kills > first.kills);
    let found = grown
        .or_else(|| limited.find(|(_, _, now)| now.was_full || (now.refused > 0 && !is_newer)));
    let (group, first, now) = found?;
    Some(KilledAt {
        group: (*group).to_owned(),
        limit: now.limit?,
        kills_before: first.kills,
        kills: now.kills,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(limit: Option<u64>, refused: u64, kills: u64) -> GroupMemory {
        GroupMemory {
            limit,
            refused,
            was_full: false,
            kills,
        }
    }

    /// Check that a unified group that is known is not read again, and that others are looked up.
    #[test]
    fn known_groups_are_not_looked_up() {
        let unified = MemoryHierarchy::unified_for_tests();
        let mut groups = MemoryGroups {
            hierarchy: Some(Some(unified)),
            ..MemoryGroups::default()
        };
        let mut text = GroupText::of(std::process::id());
        groups.begin(1, &mut text, "/a/b");
        assert!(!text.is_read());
        assert_eq!(groups.of[&1].0, "/a/b");
        groups.begin(2, &mut text, "");
        assert!(text.is_read());
    }

    /// Check that the group is named whose own limit was reached since it was first seen, also if groups below it have limits that were
    /// reached before; without a first state, the innermost one; and none if the machine has no memory left.
    #[test]
    fn the_group_at_its_limit_is_named() {
        let now = [
            ("/a/b", memory(Some(100), 3, 5)),
            ("/a", memory(Some(200), 8, 7)),
            ("/", memory(None, 9, 9)),
        ];
        let before = |level: &str| match level {
            "/a/b" => Some(memory(Some(100), 3, 4)),
            "/a" => Some(memory(Some(200), 7, 6)),
            _ => None,
        };
        let found = at_limit(now.into_iter(), before).unwrap();
        let group = |group: &str, limit, kills_before, kills| KilledAt {
            group: group.to_owned(),
            limit,
            kills_before,
            kills,
        };
        assert_eq!(found, group("/a", 200, 6, 7));
        let unknown = at_limit(now.into_iter(), |_| None).unwrap();
        assert_eq!(unknown, group("/a/b", 100, 5, 5));
        let none_reached = [("/a", memory(Some(200), 0, 7)), ("/", memory(None, 9, 9))];
        assert_eq!(at_limit(none_reached.into_iter(), |_| None), None);
        let killed_elsewhere = |level: &str| match level {
            "/a" => Some(memory(Some(200), 8, 6)),
            _ => None,
        };
        assert_eq!(at_limit(now[1..].iter().copied(), killed_elsewhere), None);
        let mut full = now;
        full[1].1.was_full = true;
        let found = at_limit(full[1..].iter().copied(), killed_elsewhere).unwrap();
        assert_eq!(found, group("/a", 200, 6, 7));
    }
}
