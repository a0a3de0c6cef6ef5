//! From when on each process was traced, in a run that reaches processes one by one, and which ended before that.
//!
//! Stage: join. The session says when it has reached a process. Must not know how.

use std::cmp::Reverse;
use std::collections::HashMap;

use heaptrace_common::wire;

use super::cgroups::Cgroups;
use super::processes;
use super::update::{ShortLived, Traced};

/// Most names of short-lived processes that an update carries.
const MOST_NAMED: usize = 100;

/// A process that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachedProcess {
    /// Its id.
    pub pid: u32,
    /// When, on the monotonic clock.
    pub time: u64,
    /// When, in nanoseconds since the run began.
    pub elapsed_ns: u64,
    /// For how long it had run by then, in nanoseconds.
    pub age_ns: u64,
    /// Its resident memory at that moment, in bytes.
    pub resident: u64,
}

/// A program image of a reached process.
#[derive(Clone, Copy, Debug)]
struct Image {
    time: u64,
    traced: Traced,
    resident: u64,
}

/// The reached processes, and those that ended before.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// The images of each process, in the order of time: events of an earlier one may arrive later.
    reached: HashMap<u32, Vec<Image>>,
    /// How many were reached.
    count: u64,
    /// When the run began, on the monotonic clock.
    began: u64,
    /// Processes that have ended, with the time. Their events may still arrive.
    ended: Vec<(u32, u64)>,
    /// The paths of control groups, while the groups exist.
    paths: HashMap<u64, String>,
}

impl Coverage {
    /// Adds a reached process.
    pub(super) fn reach(&mut self, reached: ReachedProcess) {
        self.began = reached.time.saturating_sub(reached.elapsed_ns);
        self.count += 1;
        let image = Image {
            time: 0,
            traced: Traced {
                from_ns: reached.elapsed_ns,
                age_ns: reached.age_ns,
                to_ns: None,
            },
            resident: reached.resident,
        };
        self.reached.insert(reached.pid, vec![image]);
        self.ended.retain(|(pid, _)| *pid != reached.pid);
    }

    /// How many processes were reached.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The reached processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.reached.keys().copied().collect()
    }

    /// Whether a process was reached.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.reached.contains_key(&pid)
    }

    /// Records that a process began another program, which is traced from its first instruction on.
    pub(super) fn exec(&mut self, pid: u32, time: u64) {
        let from_ns = self.elapsed(time);
        if let Some(images) = self.reached.get_mut(&pid) {
            images.push(Image {
                time,
                traced: Traced {
                    from_ns,
                    ..Traced::default()
                },
                resident: 0,
            });
        }
    }

    /// Records that a process has ended.
    pub(super) fn leave(&mut self, pid: u32, time: u64) {
        self.ended.push((pid, time));
    }

    /// Forgets processes that ended before a time up to which all events have arrived.
    pub(super) fn settle(&mut self, until: u64) {
        let Self { ended, reached, .. } = self;
        ended.retain(|(pid, time)| {
            let is_settled = *time < until;
            if is_settled {
                reached.remove(pid);
            }
            !is_settled
        });
    }

    /// From when on a process is traced, and its resident memory at that moment, by a time in the life of its program.
    pub(super) fn of(&self, pid: u32, time: u64) -> Option<(Traced, u64)> {
        let images = self.reached.get(&pid)?;
        let image = images.iter().rfind(|image| image.time <= time)?;
        Some((image.traced, image.resident))
    }

    /// A time on the monotonic clock, in nanoseconds since the run began.
    fn elapsed(&self, time: u64) -> u64 {
        time.saturating_sub(self.began)
    }

    /// Names what the kernel program has counted. Most processes first.
    pub(super) fn name(
        &mut self,
        counted: Vec<(wire::ShortLivedKey, wire::ShortLived)>,
        cgroups: &mut Cgroups,
    ) -> Vec<ShortLived> {
        let mut all: Vec<ShortLived> = Vec::new();
        for (key, count) in counted {
            let path = self.paths.entry(key.cgroup);
            all.push(ShortLived {
                command: processes::name(&key.comm),
                cgroup: path.or_insert_with(|| cgroups.path(key.cgroup)).clone(),
                processes: count.processes,
                lived_ns: count.lived_ns,
            });
        }
        all.sort_by(|one, other| {
            let order = |it: &ShortLived| Reverse(it.processes);
            let names = || (&one.command, &one.cgroup).cmp(&(&other.command, &other.cgroup));
            order(one).cmp(&order(other)).then_with(names)
        });
        all.truncate(MOST_NAMED);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(pid: u32, time: u64) -> ReachedProcess {
        ReachedProcess {
            pid,
            time,
            elapsed_ns: time - 1000,
            age_ns: 77,
            resident: 4096,
        }
    }

    /// Check that events from before an exec belong to the old program, and later ones to a program that was traced from
    /// its first instruction on.
    #[test]
    fn a_program_is_traced_from_its_beginning() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.of(7, 5000), None);
        coverage.reach(reached(7, 3000));
        coverage.exec(7, 5000);
        coverage.exec(8, 5000);
        let first = Traced {
            from_ns: 2000,
            age_ns: 77,
            to_ns: None,
        };
        assert_eq!(coverage.of(7, 4999), Some((first, 4096)));
        let second = Traced {
            from_ns: 4000,
            ..Traced::default()
        };
        assert_eq!(coverage.of(7, 5000), Some((second, 0)));
        assert!(!coverage.has(8));
    }

    /// Check that a process is forgotten when all of its events have arrived, and that one that has taken its id is not.
    #[test]
    fn ended_processes_are_forgotten() {
        let mut coverage = Coverage::default();
        for pid in [7, 8] {
            coverage.reach(reached(pid, 3000));
            coverage.leave(pid, 6000);
        }
        coverage.settle(6000);
        assert!(coverage.has(7) && coverage.has(8));
        coverage.reach(reached(8, 6000));
        coverage.settle(6001);
        assert!(!coverage.has(7) && coverage.has(8));
        assert_eq!(coverage.count(), 3);
    }
}
