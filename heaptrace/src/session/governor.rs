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
            switching: Duration::ZERO,
            watched: BTreeMap::new(),
            ended: Paid::default(),
            ticks: 0,
        }
    }

    /// The same, where a pause of one process costs no other one anything: half the credit is enough.
    pub(super) fn one_by_one(limit: f64, hit: Duration) -> Self {
        Self {
            credit: 0.5,
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
mod tests {
    use super::*;

    const HIT: Duration = Duration::from_nanos(500);

    /// A process that is always on a processor, with so many probe hits in a second of its own time.
    struct Busy {
        pid: u32,
        hits_per_second: f64,
        /// Work that it has done, in the seconds that it would take untraced.
        work: f64,
        /// Processor time that it has used, in seconds.
        time: f64,
    }

    impl Busy {
        fn new(pid: u32, hits_per_second: f64) -> Self {
            Self {
                pid,
                hits_per_second,
                work: 0.0,
                time: 100.0,
            }
        }

        /// Runs for a tick, probed or paused; returns the number of probe hits.
        fn run(&mut self, is_paused: bool) -> u64 {
            let tick = TICK.as_secs_f64();
            let slower = 1.0 + self.hits_per_second * HIT.as_secs_f64();
            let work = if is_paused { tick } else { tick / slower };
            self.work += work;
            self.time += tick;
            if is_paused {
                0
            } else {
                (work * self.hits_per_second) as u64
            }
        }
    }

    /// Runs processes for so many seconds. Returns which went over the limit and when, and for how many ticks
    /// each was paused.
    fn run(
        governor: &mut Governor,
        from: f64,
        seconds: f64,
        busy: &mut [Busy],
    ) -> (Vec<(f64, OverLimit)>, HashMap<u32, u32>) {
        let (mut overs, mut pauses) = (Vec::new(), HashMap::new());
        let mut now = from;
        while now < from + seconds {
            now += TICK.as_secs_f64();
            let paused = governor.paused();
            let mut hits = HashMap::new();
            for it in busy.iter_mut() {
                let is_paused = paused.contains(&it.pid);
                *pauses.entry(it.pid).or_default() += u32::from(is_paused);
                let count = it.run(is_paused);
                if count > 0 {
                    hits.insert(it.pid, count);
                }
            }
            let times: HashMap<u32, f64> = busy.iter().map(|it| (it.pid, it.time)).collect();
            let time_of = |pid: u32| times.get(&pid).map(|time| Duration::from_secs_f64(*time));
            let over = governor.tick(Duration::from_secs_f64(now), &hits, time_of);
            overs.extend(over.into_iter().map(|over| (now, over)));
        }
        (overs, pauses)
    }

    /// Check that processes with any rate of hits are kept to any limit, and that processes below it are not
    /// paused.
    #[test]
    fn overhead_is_kept_to_the_limit() {
        for limit in [0.01, 0.05, 0.2, 0.5] {
            for rate in [1e4, 1e5, 4e5, 1e6, 1e7, 1e8] {
                let mut governor = Governor::new(limit, HIT);
                let mut busy = [Busy::new(7, rate)];
                let before = rate * HIT.as_secs_f64();
                let share = before / (1.0 + before);
                let (overs, pauses) = run(&mut governor, 0.0, 20.0, &mut busy);
                if share <= limit {
                    assert!(overs.is_empty() && pauses[&7] == 0, "{limit} {rate}");
                    continue;
                }
                let [(at, over)] = overs[..] else {
                    panic!("{limit} {rate}: {overs:?}")
                };
                // The sooner, the more it is over the limit.
                let expected = 5.0 * limit / (share - limit);
                // The hits of the first tick are a debt as a whole.
                assert!(
                    (expected - 0.2..expected + 0.8).contains(&at),
                    "{at} {expected}"
                );
                assert!((over.share - share).abs() < 0.01, "{over:?} {share}");
                // Then over many cycles: the beginning is made up for.
                let (overs, _) = run(&mut governor, 20.0, 580.0, &mut busy);
                assert!(overs.is_empty(), "a duty cycle begins once");
                let paid = 1.0 - busy[0].work / 600.0;
                assert!(paid < limit * 1.05, "{limit} {rate}: {paid}");
                let told = governor.paid().share();
                assert!((told - paid).abs() < 0.001, "{limit} {rate}: {paid} {told}");
                // It is not paused longer than needed, except where the shortest time of being probed demands
                // it.
                assert!(paid > limit * 0.5, "{limit} {rate}: {paid}");
            }
        }
    }

    /// Check that a young process is paused before probes took much more of its life than the limit.
    #[test]
    fn young_processes_have_less_credit() {
        for age in [0.2, 1.2, 3.0] {
            let mut governor = Governor::new(0.05, HIT);
            let mut busy = [Busy::new(7, 1e7)];
            busy[0].time = age;
            let (overs, _) = run(&mut governor, 0.0, 1.0, &mut busy);
            let [(at, _)] = overs[..] else {
                panic!("{age}: {overs:?}")
            };
            assert!(at < 0.35, "{age}: {at}");
            let paid = 1.0 - busy[0].work;
            assert!(paid < 0.35, "{age}: {paid}");
        }
    }

    /// Check that a compiler that is reached when it is a second old is paused at the second look, also if that comes a bit early.
    #[test]
    fn reached_processes_are_paused_at_the_second_look() {
        let early = TICK - Duration::from_micros(100);
        for first in [10_u32, 90] {
            let mut governor = Governor::one_by_one(0.05, HIT);
            // Half of its time goes into probes.
            let hits = |ms: u32| HashMap::from([(7, u64::from(ms) * 1000)]);
            let at = |ms: u32| move |_| Some(Duration::from_millis((1100 + ms).into()));
            let now = TICK * 10;
            assert!(governor.tick(now, &hits(first), at(first)).is_empty());
            let over = governor.tick(now + early, &hits(100), at(first + 100));
            assert!(over.len() == 1 && governor.paused().contains(&7), "{first}");
        }
    }

    /// Check that a process is not paused for what its probes took before it was watched, until it was recorded for a while.
    #[test]
    fn every_process_is_recorded_first() {
        let mut governor = Governor::new(0.05, HIT);
        let attaching = HashMap::from([(7, 10_000_000)]);
        let time_of = |_| Some(Duration::from_secs(100));
        assert!(governor.tick(TICK, &attaching, time_of).is_empty());
        let mut busy = [Busy::new(7, 0.0)];
        let (overs, pauses) = run(&mut governor, 0.1, 1.0, &mut busy);
        assert!(overs.is_empty() && pauses[&7] == 0);
        busy[0].hits_per_second = 1e7;
        let (overs, _) = run(&mut governor, 1.1, 1.0, &mut busy);
        let [(at, _)] = overs[..] else {
            panic!("{overs:?}")
        };
        assert!(at > 1.15 && at < 1.45, "{at}");
    }

    /// Check that a run without a limit pauses no process, whatever its probes took before it was watched, and measures all the same.
    #[test]
    fn without_a_limit_no_process_is_paused() {
        let mut governor = Governor::new(f64::INFINITY, HIT);
        let attaching = HashMap::from([(7, 10_000_000)]);
        let time_of = |_| Some(Duration::from_secs(100));
        assert!(governor.tick(TICK, &attaching, time_of).is_empty());
        let mut busy = [Busy::new(7, 1e7)];
        let (overs, pauses) = run(&mut governor, 0.1, 20.0, &mut busy);
        assert!(overs.is_empty() && pauses[&7] == 0, "{overs:?}");
        let share = governor.paid().share();
        assert!((0.8..0.9).contains(&share), "{share}");
    }

    /// Check that slow switching is done less often, and that the limit is kept nevertheless.
    #[test]
    fn switching_takes_little_of_the_time() {
        for many in [1, 3] {
            let mut governor = Governor::new(0.05, HIT);
            let mut busy: Vec<Busy> = (0..many).map(|pid| Busy::new(pid, 1e7)).collect();
            let took = Duration::from_millis(400);
            let mut now = 3.0;
            run(&mut governor, 0.0, now, &mut busy);
            // Also at the beginning, although the time that a switch takes is learned only then.
            for (seconds, most) in [(20.0, 0.2), (600.0, 0.06)] {
                busy.iter_mut().for_each(|it| it.work = 0.0);
                let (mut switches, end) = (0, now + seconds);
                while now < end {
                    let before = governor.paused();
                    run(&mut governor, now, 0.05, &mut busy);
                    now += TICK.as_secs_f64();
                    if governor.paused() != before {
                        switches += 1;
                        governor.switched(took);
                    }
                }
                let switched = f64::from(switches) * took.as_secs_f64() / seconds;
                assert!(switched > 0.01 && switched < most, "{many}: {switched}");
                for it in &busy {
                    let paid = 1.0 - it.work / seconds;
                    assert!(paid > 0.02 && paid < 0.1, "{many}: {paid}");
                }
            }
        }
    }

    /// Check that only processes over the limit are paused.
    #[test]
    fn processes_below_the_limit_are_not_paused() {
        let mut governor = Governor::new(0.05, HIT);
        let mut busy = [Busy::new(1, 1e7), Busy::new(2, 5e4), Busy::new(3, 0.0)];
        let (overs, pauses) = run(&mut governor, 0.0, 60.0, &mut busy);
        assert_eq!(overs.len(), 1);
        assert!(
            pauses[&1] > 500 && pauses[&2] == 0 && pauses[&3] == 0,
            "{pauses:?}"
        );
    }

    /// Check that a server that is probed for twenty seconds keeps to the limit in this time.
    #[test]
    fn the_limit_holds_from_the_beginning() {
        let mut governor = Governor::new(0.05, HIT);
        let mut busy = [Busy::new(1, 2.5e6)];
        run(&mut governor, 0.0, 20.0, &mut busy);
        let paid = 1.0 - busy[0].work / 20.0;
        assert!(paid < 0.055, "{paid}");
    }

    /// Check that hits that come while a slow switch is under way are made up for.
    #[test]
    fn slow_switches_are_made_up_for() {
        let mut governor = Governor::new(0.05, HIT);
        let mut busy = [Busy::new(1, 2.5e6)];
        let (mut now, mut slow) = (0.0, 0);
        while now < 300.0 {
            let was_paused = !governor.paused().is_empty();
            now += TICK.as_secs_f64();
            // Each pause takes effect a second late.
            slow = if was_paused { slow + 1 } else { 0 };
            let hits = busy[0].run(was_paused && slow > 10);
            let time = Duration::from_secs_f64(busy[0].time);
            let now = Duration::from_secs_f64(now);
            governor.tick(now, &HashMap::from([(1, hits)]), |_| Some(time));
        }
        let paid = 1.0 - busy[0].work / 300.0;
        assert!(paid < 0.055, "{paid}");
    }

    /// Check that bursts that are within the limit over time start no duty cycle, however often they come, and that
    /// others do.
    #[test]
    fn bursts_count_over_time() {
        for (pause, is_over) in [(20, false), (1, true)] {
            let mut governor = Governor::new(0.05, HIT);
            let mut busy = [Busy::new(1, 1e7)];
            let mut overs = Vec::new();
            for part in 0..400_u32 {
                let is_burst = part.is_multiple_of(pause + 1);
                busy[0].hits_per_second = if is_burst { 1e7 } else { 1e3 };
                let from = f64::from(part) / 4.0;
                overs.extend(run(&mut governor, from, 0.25, &mut busy).0);
            }
            assert_eq!(!overs.is_empty(), is_over, "{pause}");
        }
    }

    /// Check that a process that calms down is probed all the time again and stays so just below the limit,
    /// and that a process at the limit does not change back and forth.
    #[test]
    fn changes_have_hysteresis() {
        let mut governor = Governor::new(0.05, HIT);
        let mut busy = [Busy::new(1, 1e6)];
        let (overs, _) = run(&mut governor, 0.0, 10.0, &mut busy);
        assert_eq!(overs.len(), 1);
        // Between the margin and the limit: keeps its duty cycle, and is probed most of the time.
        busy[0].hits_per_second = 0.045 / (1.0 - 0.045) / HIT.as_secs_f64();
        run(&mut governor, 10.0, 20.0, &mut busy);
        let (overs, pauses) = run(&mut governor, 30.0, 60.0, &mut busy);
        assert!(
            overs.is_empty() && pauses[&1] > 0 && pauses[&1] < 100,
            "{pauses:?}"
        );
        busy[0].hits_per_second = 5e4;
        run(&mut governor, 90.0, 10.0, &mut busy);
        let (_, pauses) = run(&mut governor, 100.0, 60.0, &mut busy);
        assert_eq!(pauses[&1], 0);
        // Over the limit again.
        busy[0].hits_per_second = 1e7;
        let (overs, _) = run(&mut governor, 160.0, 10.0, &mut busy);
        assert_eq!(overs.len(), 1);
    }

    /// Check that processes are forgotten when they end, or when another process has their pid.
    #[test]
    fn ended_processes_are_forgotten() {
        let mut governor = Governor::new(0.05, HIT);
        run(
            &mut governor,
            0.0,
            10.0,
            &mut [Busy::new(1, 1e8), Busy::new(2, 1e8)],
        );
        // Process 1 is gone, and pid 2 is another process.
        run(&mut governor, 10.0, 0.5, &mut [Busy::new(2, 1e3)]);
        assert!(governor.paused().is_empty());
        assert!(governor.watched.keys().all(|pid| *pid == 2), "{governor:?}");
    }

    /// Check that a process that rarely runs is not paused, however large the share of the probes is.
    #[test]
    fn idle_processes_are_not_paused() {
        let mut governor = Governor::new(0.05, HIT);
        let mut time = 0.0;
        for tick in 1..200 {
            time += 0.0005;
            let hits = HashMap::from([(9, 900)]);
            let time_of = |_| Some(Duration::from_secs_f64(time));
            let over = governor.tick(TICK * tick, &hits, time_of);
            assert!(over.is_empty());
        }
    }
}
