//! Decides which processes are paused because tracing costs them too much.
//!
//! Part of the session. The cost of a process is the number of its probe hits times the cost of one hit. The
//! share of that cost in the processor time of the same process must stay below a limit (see [`Watched`] for
//! the rules). Pure: must not know the kernel program, how a process is paused, or what time it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::watched::{Look, Paid, Terms, Watched};

/// Time between two looks at the probe hits.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// The shortest cycle of a duty cycle, and the longest that slow switching makes necessary.
const CYCLE: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(60);

/// A time to pause or resume a process that is not worth adapting to.
const SHORT_SWITCH: Duration = Duration::from_millis(40);

/// The part of the time that may go into switching. A process that forks meanwhile may have to wait for the
/// kernel.
const SWITCHING: f64 = 0.05;

/// Processes without hits are looked at only at every so many ticks.
const IDLE_TICKS: u64 = 16;

/// A process that gets a duty cycle from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OverLimit {
    pub(super) pid: u32,
    /// The share of its processor time that went into probes.
    pub(super) share: f64,
}

/// Watches the overhead of all processes.
#[derive(Debug)]
pub(super) struct Governor {
    /// The share of a process's time that may go into probes.
    limit: f64,
    /// Seconds that a probe hit takes.
    hit: f64,
    /// The part of its credit that a process may use up before its first pause.
    credit: f64,
    /// Whether a pause also makes up for the time of being probed after it.
    pays_ahead: bool,
    /// Time that it takes to pause or to resume a process.
    switching: Duration,
    watched: BTreeMap<u32, Watched>,
    /// What processes paid that have ended.
    ended: Paid,
    ticks: u64,
}

impl Governor {
    pub(super) fn new(limit: f64, hit: Duration) -> Self {
        Self {
            limit,
            hit: hit.as_secs_f64(),
            credit: 1.0,
            pays_ahead: false,
            switching: Duration::ZERO,
            watched: BTreeMap::new(),
            ended: Paid::default(),
            ticks: 0,
        }
    }

    /// The same, where a pause of one process costs no other one anything: half the credit is enough, and pauses may last
    /// as long as it takes to pay ahead.
    pub(super) fn one_by_one(limit: f64, hit: Duration) -> Self {
        Self {
            credit: 0.5,
            pays_ahead: true,
            ..Self::new(limit, hit)
        }
    }

    /// Takes in how long it took to pause or to resume processes.
    pub(super) fn switched(&mut self, took: Duration) {
        // The longer times count: most switches take no time, but those that wait make others wait. A single
        // very long time counts only in part at first, or the next time of being probed would be as long.
        let most = self.switching.max(SHORT_SWITCH).mul_f64(1.5);
        self.switching = took.max(self.switching.mul_f64(0.8)).min(most);
    }

    fn terms(&self) -> Terms {
        let switching = self.watched.values().filter(|it| it.has_duty_cycle());
        let many = switching.count().max(1);
        // Each cycle switches twice: off and on.
        let cycle = self.switching.mul_f64(2.0 * many as f64 / SWITCHING);
        Terms {
            limit: self.limit,
            hit: self.hit,
            cycle: cycle.clamp(*CYCLE.start(), *CYCLE.end()),
            credit: self.credit,
            pays_ahead: self.pays_ahead,
        }
    }

    /// Takes in the newest measured cost of a probe hit.
    pub(super) fn set_hit(&mut self, hit: Duration) {
        self.hit = hit.as_secs_f64();
    }

    /// Takes in the probe hits since the last call. `time_of` gives the processor time that a process has
    /// used so far; `None` for a process that is gone. Returns the processes that get a duty cycle from now
    /// on.
    pub(super) fn tick(
        &mut self,
        now: Duration,
        hits: &HashMap<u32, u64>,
        time_of: impl Fn(u32) -> Option<Duration>,
    ) -> Vec<OverLimit> {
        let terms = self.terms();
        for (pid, hits) in hits {
            match self.watched.get_mut(pid) {
                Some(watched) => watched.add_hits(now, *hits, terms),
                None => {
                    let Some(time) = time_of(*pid) else { continue };
                    self.watched
                        .insert(*pid, Watched::new(now, time, *hits, terms));
                }
            }
        }
        self.ticks += 1;
        let looks_at_idle = self.ticks.is_multiple_of(IDLE_TICKS);
        let mut over = Vec::new();
        let ended = &mut self.ended;
        self.watched.retain(|pid, watched| {
            if watched.is_idle() && !looks_at_idle {
                return true;
            }
            let is_here = time_of(*pid).is_some_and(|time| watched.see(time));
            if !is_here {
                ended.add(watched.paid(terms));
                return false;
            }
            if watched.look(now, terms) == Look::OverLimit {
                over.push(OverLimit {
                    pid: *pid,
                    share: watched.share(),
                });
            }
            true
        });
        over
    }

    /// What probes took of the processor time of all processes that had hits.
    pub(super) fn paid(&self) -> Paid {
        let terms = self.terms();
        let mut sum = self.ended;
        for watched in self.watched.values() {
            sum.add(watched.paid(terms));
        }
        sum
    }

    /// The processes with a duty cycle, and the share of its processor time that probes took of each since its
    /// first hit.
    pub(super) fn reached(&self) -> impl Iterator<Item = (u32, f64)> {
        let terms = self.terms();
        let watched = self.watched.iter().filter(|(_, it)| it.has_duty_cycle());
        watched.map(move |(pid, it)| (*pid, it.paid(terms).share()))
    }

    /// The processes that are paused now.
    pub(super) fn paused(&self) -> BTreeSet<u32> {
        let paused = self.watched.iter().filter(|(_, it)| it.is_paused());
        paused.map(|(pid, _)| *pid).collect()
    }
}

#[cfg(test)]
mod tests;
