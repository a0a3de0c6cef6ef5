//! Which processes have run for long enough to be reached with probes.
//!
//! Part of the session, in a run that reaches processes one by one. A process that ends sooner is never looked at. Pure:
//! must not know how processes are listed, or how they are reached.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// A process is reached when it has run for so long.
pub(super) const AGE: Duration = Duration::from_secs(1);

/// A process that has run for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) pid: u32,
    /// For how long it has run.
    pub(super) age: Duration,
}

/// What is known of a process at first sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It started at this time, since the machine did.
    Started(Duration),
    /// It is never reached: a thread of the kernel, or one of heaptrace's own processes.
    Ignored,
}

/// What a look at the running processes has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) arrived: Vec<Arrived>,
    /// Processes that had arrived, and have ended.
    pub(super) gone: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Young { started: Duration },
    Arrived,
    Ignored,
}

/// The running processes, and which of them have arrived.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    known: HashMap<u32, State>,
}

impl Arrivals {
    /// Looks at the running processes. `see` is called once for each new one; it gives `None` for one that is gone.
    pub(super) fn look(
        &mut self,
        now: Duration,
        running: &BTreeSet<u32>,
        see: impl Fn(u32) -> Option<Seen>,
    ) -> Change {
        let mut change = Change::default();
        self.known.retain(|pid, state| {
            let is_here = running.contains(pid);
            if !is_here && *state == State::Arrived {
                change.gone.push(*pid);
            }
            is_here
        });
        for pid in running {
            let state = match self.known.get(pid) {
                Some(state) => *state,
                None => match see(*pid) {
                    Some(Seen::Started(started)) => State::Young { started },
                    Some(Seen::Ignored) => State::Ignored,
                    None => continue,
                },
            };
            let state = match state {
                State::Young { started } if now.saturating_sub(started) >= AGE => {
                    let age = now.saturating_sub(started);
                    change.arrived.push(Arrived { pid: *pid, age });
                    State::Arrived
                }
                other => other,
            };
            self.known.insert(*pid, state);
        }
        change
    }

    /// Forgets a process that has ended, so that another one with its id is a new one.
    pub(super) fn forget(&mut self, pid: u32) {
        self.known.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn look(arrivals: &mut Arrivals, now: u64, running: &[u32]) -> (Vec<u32>, Vec<u32>) {
        // A process starts at the second that is its id; those from 100 on are ignored.
        let see = |pid: u32| match pid {
            100.. => Some(Seen::Ignored),
            _ => Some(Seen::Started(seconds(pid.into()))),
        };
        let running = running.iter().copied().collect();
        let change = arrivals.look(seconds(now), &running, see);
        let pids = change.arrived.iter().map(|it| {
            assert_eq!(it.age, seconds(now - u64::from(it.pid)));
            it.pid
        });
        (pids.collect(), change.gone)
    }

    /// Check that a process arrives once, when it is old enough, that ignored ones never arrive, and that only those that
    /// had arrived are gone when they end.
    #[test]
    fn processes_arrive_when_they_are_old_enough() {
        let mut arrivals = Arrivals::default();
        assert_eq!(look(&mut arrivals, 8, &[3, 8, 100]), (vec![3], vec![]));
        assert_eq!(look(&mut arrivals, 9, &[3, 8, 9, 100]), (vec![8], vec![]));
        assert_eq!(look(&mut arrivals, 9, &[8, 100]), (vec![], vec![3]));
        assert_eq!(look(&mut arrivals, 20, &[]), (vec![], vec![8]));
    }

    /// Check that a forgotten process is a new one when its id is seen again.
    #[test]
    fn forgotten_processes_are_new() {
        let mut arrivals = Arrivals::default();
        assert_eq!(look(&mut arrivals, 8, &[3]), (vec![3], vec![]));
        arrivals.forget(3);
        assert_eq!(look(&mut arrivals, 9, &[3]), (vec![3], vec![]));
    }
}
