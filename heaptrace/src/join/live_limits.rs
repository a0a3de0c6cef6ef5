//! Which processes, or control groups, hold more live memory than a limit.
//!
//! Stage: join. Must not know what is done when one does.

use std::collections::HashMap;

use super::marks::Exceeded;
use super::update::Process;
use crate::config::{LimitedBy, LiveLimit};

/// Most processes or control groups whose limits are kept. Beyond it, those that hold less than their limit are forgotten.
const MOST_KEPT: usize = 4096;

/// The limit, and how often each process or group has exceeded it.
#[derive(Debug)]
pub(super) struct LiveLimits {
    limit: LiveLimit,
    /// The next limit of those that have exceeded the first.
    next: HashMap<Holder, u64>,
}

/// Who holds memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Holder {
    /// A process, by its id and start, so that another program of it is the same one.
    Process(u32, u64),
    /// A control group, by its path.
    Group(String),
}

/// A running process and its live bytes.
pub(super) type Running<'a> = (&'a Process, u64);

impl LiveLimits {
    pub(super) fn new(mut limit: LiveLimit) -> Self {
        if let LimitedBy::Group(selected) = &mut limit.by {
            for path in selected {
                *path = as_in_proc(path);
            }
        }
        Self {
            limit,
            next: HashMap::new(),
        }
    }

    /// Those that exceed a limit now that they did not exceed before, the largest first. The limit doubles each time.
    pub(super) fn exceeded<'a>(
        &mut self,
        running: impl Iterator<Item = Running<'a>>,
    ) -> Vec<Exceeded> {
        let mut held: HashMap<Holder, (&Process, u64)> = HashMap::new();
        for (process, live) in running.filter(|(_, live)| *live > 0) {
            let sum = &mut held.entry(self.holder(process)).or_insert((process, 0)).1;
            *sum = sum.saturating_add(live);
        }
        let mut exceeded = Vec::new();
        for (holder, (process, live_bytes)) in &held {
            let limit = self.next.get(holder).copied();
            let mut limit_bytes = limit.unwrap_or(self.limit.bytes);
            if *live_bytes <= limit_bytes {
                continue;
            }
            // It may have grown by more than one doubling since the last call.
            let mut next = limit_bytes.saturating_mul(2);
            while *live_bytes > next && next < u64::MAX {
                limit_bytes = next;
                next = next.saturating_mul(2);
            }
            self.next.insert(holder.clone(), next);
            exceeded.push(Exceeded {
                mark: 0,
                at_ns: 0,
                limit_bytes,
                live_bytes: *live_bytes,
                name: match holder {
                    Holder::Process(..) => format!("{} ({})", process.command, process.pid),
                    Holder::Group(path) if path.is_empty() => "(unknown)".to_owned(),
                    Holder::Group(path) => path.clone(),
                },
                is_group: matches!(holder, Holder::Group(_)),
            });
        }
        if self.next.len() > MOST_KEPT {
            self.next.retain(|holder, _| held.contains_key(holder));
        }
        exceeded.sort_by(|a, b| (b.live_bytes, &a.name).cmp(&(a.live_bytes, &b.name)));
        exceeded
    }

    fn holder(&self, process: &Process) -> Holder {
        match &self.limit.by {
            LimitedBy::Process => Holder::Process(process.pid, process.start_time_ns),
            LimitedBy::Group(selected) => {
                Holder::Group(group(&process.cgroup, selected).to_owned())
            }
        }
    }
}

/// The path of a selected group as processes have it: it may be given as its folder, and without its first slash.
fn as_in_proc(path: &str) -> String {
    let below = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .iter()
        .filter_map(|mount| path.strip_prefix(mount))
        .find(|rest| rest.is_empty() || rest.starts_with('/'));
    format!("/{}", below.unwrap_or(path).trim_matches('/'))
}

/// The selected group that a group is or is below of; the group itself if none is.
fn group<'a>(path: &'a str, selected: &'a [String]) -> &'a str {
    let is_in = |it: &&String| {
        let rest = path.strip_prefix(it.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    selected
        .iter()
        .filter(is_in)
        .max_by_key(|it| it.len())
        .map_or(path, |it| it.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, cgroup: &str) -> Process {
        Process {
            pid,
            command: "worker".to_owned(),
            cgroup: cgroup.to_owned(),
            ..Process::default()
        }
    }

    fn limits(by: LimitedBy) -> LiveLimits {
        LiveLimits::new(LiveLimit { bytes: 100, by })
    }

    fn told(exceeded: Vec<Exceeded>) -> Vec<(String, u64, u64)> {
        let each = exceeded.into_iter();
        each.map(|it| (it.name, it.limit_bytes, it.live_bytes))
            .collect()
    }

    /// Check that a process exceeds a limit once, and again at each doubling, and that a jump beyond several counts once.
    #[test]
    fn each_doubling_counts_once() {
        let mut limits = limits(LimitedBy::Process);
        let (one, other) = (process(1, "/a"), process(2, "/a"));
        let mut at = |live, rest| {
            let running = [(&one, live), (&other, rest)];
            told(limits.exceeded(running.into_iter()))
        };
        let of = |pid, limit, live| (format!("worker ({pid})"), limit, live);
        assert_eq!(at(100, 60), []);
        assert_eq!(at(101, 60), [of(1, 100, 101)]);
        assert_eq!(at(150, 0), []);
        assert_eq!(at(40, 0), []);
        assert_eq!(at(200, 0), []);
        assert_eq!(at(900, 201), [of(1, 800, 900), of(2, 200, 201)]);
        assert_eq!(at(1600, 400), []);
        assert_eq!(at(u64::MAX, 401).len(), 2);
        assert_eq!(at(u64::MAX, 402), []);
    }

    /// Check that processes of a control group count together, and that those below a selected group belong to it.
    #[test]
    fn groups_count_together() {
        let all = [
            process(1, "/a/one"),
            process(2, "/a/two"),
            process(3, "/ab"),
        ];
        let of = |by| {
            let running = all.iter().zip([60, 70, 90]);
            told(limits(by).exceeded(running))
        };
        assert_eq!(of(LimitedBy::Group(Vec::new())), []);
        let selected = vec!["/sys/fs/cgroup/a/".to_owned(), "x".to_owned()];
        assert_eq!(
            of(LimitedBy::Group(selected)),
            [("/a".to_owned(), 100, 130)]
        );
    }
}
