//! How much tracing costs each process, and whom to leave alone for a while because it is too much.
//!
//! Part of the session. What a process pays is the number of its hits times what one takes; its share of the
//! processor time that the process uses in the same time is what must not be more than the limit. Where it is, for
//! two seconds on end, the process is probed in turns: a while on and a while off, in the ratio that keeps to
//! the limit by what was measured while it was on. When it has been below the limit for a while, by a margin,
//! it is probed all the time again. Pure: knows neither the kernel program, nor how anybody is left alone,
//! nor what time it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Time between two looks at the hits.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Over how long a share is measured, where nothing needs to be quicker.
const LOOK: Duration = Duration::from_millis(500);

/// How long a process may be over the limit before it is probed in turns, and below before it no longer is.
const PATIENCE: Duration = Duration::from_secs(2);

/// The shortest time that a process is probed for: below it, turning takes more than it gives.
const LEAST_ON: Duration = Duration::from_millis(100);

/// The shortest time from one turn to the next of its kind, and the longest of what is necessary.
const CYCLE: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(60);

/// A turn that is of no account.
const SHORT_TURN: Duration = Duration::from_millis(40);

/// The part of the time that may go into turning: meanwhile, whoever forks may have to wait for the kernel.
const TURNING: f64 = 0.05;

/// The longest time that a process is left alone for.
const MOST_OFF: Duration = Duration::from_secs(120);

/// Hits that take less than this share of one processor slow nobody down, whatever share of little it is.
const WORTH_IT: f64 = 0.01;

/// What of the limit is enough for a process to be probed all the time again.
const MARGIN: f64 = 0.8;

/// A process that is about to be probed in turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Over {
    pub(super) pid: u32,
    /// The share of its processor time that went into probes.
    pub(super) share: f64,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Governor {
    /// The share of a process's time that may go into probes.
    limit: f64,
    /// Seconds that a hit takes.
    hit: f64,
    /// Time that it takes to leave somebody alone, or to reach him again.
    turning: Duration,
    watched: BTreeMap<u32, Watched>,
}

/// What everybody is judged by.
#[derive(Clone, Copy, Debug)]
struct Terms {
    limit: f64,
    hit: f64,
    /// Time from one turn to the next of its kind.
    cycle: Duration,
}

#[derive(Debug)]
struct Watched {
    turn: Turn,
    /// Since when `hits` are counted, and the processor time of the process then.
    since: Duration,
    time: Duration,
    hits: u64,
    /// Share of its time that went into probes, while it was probed.
    share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    /// Probed all the time; how long it has been over the limit.
    Always(Duration),
    /// On, until then; how long it has been below the limit.
    On(Duration, Duration),
    /// Off, until then.
    Off(Duration),
}

impl Governor {
    /// Nobody watched yet.
    pub(super) fn new(limit: f64, hit: Duration) -> Self {
        Self {
            limit,
            hit: hit.as_secs_f64(),
            turning: Duration::ZERO,
            watched: BTreeMap::new(),
        }
    }

    /// Takes in how long it took to leave somebody alone, or to reach him again.
    pub(super) fn turned(&mut self, took: Duration) {
        // The longer ones count: most turns take nothing, but those that wait make others wait. One that took very long
        // is not believed at once, or the next time of being probed would be as long.
        let most = self.turning.max(SHORT_TURN).mul_f64(1.5);
        self.turning = took.max(self.turning.mul_f64(0.8)).min(most);
    }

    fn terms(&self) -> Terms {
        let in_turns = |it: &&Watched| !matches!(it.turn, Turn::Always(_));
        let many = self.watched.values().filter(in_turns).count().max(1);
        // One turn off and one on.
        let cycle = self.turning.mul_f64(2.0 * many as f64 / TURNING);
        Terms {
            limit: self.limit,
            hit: self.hit,
            cycle: cycle.clamp(*CYCLE.start(), *CYCLE.end()),
        }
    }

    /// Takes in what a hit takes, as is known by now.
    pub(super) fn set_hit(&mut self, hit: Duration) {
        self.hit = hit.as_secs_f64();
    }

    /// Takes in the hits since the last call, and how much processor time a process has used so far; `None` for one
    /// that is gone. Returns those who are probed in turns from now on.
    pub(super) fn tick(
        &mut self,
        now: Duration,
        hits: &HashMap<u32, u64>,
        time_of: impl Fn(u32) -> Option<Duration>,
    ) -> Vec<Over> {
        for (pid, hits) in hits {
            match self.watched.get_mut(pid) {
                Some(watched) => watched.hits += hits,
                // These hits came in a time of which nothing is known.
                None => {
                    let Some(time) = time_of(*pid) else { continue };
                    self.watched.insert(*pid, Watched::new(now, time));
                }
            }
        }
        let terms = self.terms();
        let mut over = Vec::new();
        self.watched.retain(|pid, watched| {
            // Less time than before is another process's that has got the number.
            let Some(time) = time_of(*pid).filter(|time| *time >= watched.time) else {
                return false;
            };
            let (is_kept, is_over) = watched.look(now, time, terms);
            if is_over {
                over.push(Over {
                    pid: *pid,
                    share: watched.share,
                });
            }
            is_kept
        });
        over
    }

    /// Who is to be left alone now.
    pub(super) fn off(&self) -> BTreeSet<u32> {
        let is_off = |it: &Watched| matches!(it.turn, Turn::Off(_));
        let off = self.watched.iter().filter(|(_, it)| is_off(it));
        off.map(|(pid, _)| *pid).collect()
    }
}

impl Watched {
    fn new(now: Duration, time: Duration) -> Self {
        Self {
            turn: Turn::Always(Duration::ZERO),
            since: now,
            time,
            hits: 0,
            share: 0.0,
        }
    }

    /// Looks at what came, where it is time to. Whether to go on watching, and whether turns begin.
    fn look(&mut self, now: Duration, time: Duration, terms: Terms) -> (bool, bool) {
        let limit = terms.limit;
        let passed = now.saturating_sub(self.since);
        match self.turn {
            Turn::Off(until) => {
                if now >= until {
                    self.begin(now, time);
                    self.turn = Turn::On(now + self.on(terms), Duration::ZERO);
                }
                return (true, false);
            }
            Turn::On(until, _) if now < until => return (true, false),
            Turn::Always(_) if passed < LOOK => return (true, false),
            _ => {}
        }
        let hits = self.hits;
        let paid = hits as f64 * terms.hit;
        let used = time.saturating_sub(self.time).as_secs_f64();
        // What is measured is never exact; no process pays more than it uses.
        let share = if used > 0.0 {
            (paid / used).min(1.0)
        } else {
            0.0
        };
        let is_worth_it = paid >= WORTH_IT * passed.as_secs_f64();
        self.begin(now, time);
        match self.turn {
            Turn::Always(over) if share > limit && is_worth_it => {
                self.share = if over.is_zero() {
                    share
                } else {
                    mean(self.share, share)
                };
                let over = over + passed;
                self.turn = Turn::Always(over);
                if over >= PATIENCE {
                    self.turn = Turn::Off(now + self.off(self.on(terms), limit));
                    return (true, true);
                }
            }
            Turn::Always(_) => {
                self.turn = Turn::Always(Duration::ZERO);
                return (hits > 0, false);
            }
            Turn::On(_, below) => {
                if share <= limit * MARGIN || !is_worth_it {
                    let below = below + passed;
                    self.turn = if below >= PATIENCE {
                        Turn::Always(Duration::ZERO)
                    } else {
                        Turn::On(now + LOOK, below)
                    };
                } else {
                    self.share = mean(self.share, share);
                    self.turn = Turn::Off(now + self.off(passed, limit));
                }
            }
            Turn::Off(_) => {}
        }
        (true, false)
    }

    fn begin(&mut self, now: Duration, time: Duration) {
        self.since = now;
        self.time = time;
        self.hits = 0;
    }

    /// How long to probe it before it is left alone again.
    fn on(&self, Terms { limit, cycle, .. }: Terms) -> Duration {
        let part = (limit / self.share.max(limit)).min(1.0);
        cycle.mul_f64(part).max(LEAST_ON)
    }

    /// How long to leave it alone, that was probed for so long.
    fn off(&self, on: Duration, limit: f64) -> Duration {
        let times = (self.share / limit - 1.0).max(0.0);
        on.mul_f64(times).clamp(LEAST_ON, MOST_OFF)
    }
}

/// A mean that follows the newer of two.
fn mean(before: f64, now: f64) -> f64 {
    (before + now) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIT: Duration = Duration::from_nanos(500);

    /// A process that calls so often in a second of its own time, always on a processor.
    struct Busy {
        pid: u32,
        hits_per_second: f64,
        /// Untraced seconds of work that it has done, and processor time that it has used.
        work: f64,
        time: f64,
    }

    impl Busy {
        fn new(pid: u32, hits_per_second: f64) -> Self {
            Self {
                pid,
                hits_per_second,
                work: 0.0,
                time: 0.0,
            }
        }

        /// Runs for a tick, probed or not; how many hits there were.
        fn run(&mut self, is_off: bool) -> u64 {
            let tick = TICK.as_secs_f64();
            let slower = 1.0 + self.hits_per_second * HIT.as_secs_f64();
            let work = if is_off { tick } else { tick / slower };
            self.work += work;
            self.time += tick;
            if is_off {
                0
            } else {
                (work * self.hits_per_second) as u64
            }
        }
    }

    /// Runs processes for so many seconds. Who went over, when, and for how many ticks each was off.
    fn run(
        governor: &mut Governor,
        from: f64,
        seconds: f64,
        busy: &mut [Busy],
    ) -> (Vec<(f64, Over)>, HashMap<u32, u32>) {
        let (mut overs, mut offs) = (Vec::new(), HashMap::new());
        let mut now = from;
        while now < from + seconds {
            now += TICK.as_secs_f64();
            let off = governor.off();
            let mut hits = HashMap::new();
            for it in busy.iter_mut() {
                let is_off = off.contains(&it.pid);
                *offs.entry(it.pid).or_default() += u32::from(is_off);
                let count = it.run(is_off);
                if count > 0 {
                    hits.insert(it.pid, count);
                }
            }
            let times: HashMap<u32, f64> = busy.iter().map(|it| (it.pid, it.time)).collect();
            let time_of = |pid: u32| times.get(&pid).map(|time| Duration::from_secs_f64(*time));
            let over = governor.tick(Duration::from_secs_f64(now), &hits, time_of);
            overs.extend(over.into_iter().map(|over| (now, over)));
        }
        (overs, offs)
    }

    /// Check that processes of any rate are kept to any limit, and that those below it are left as they are.
    #[test]
    fn keeps_to_the_limit() {
        for limit in [0.01, 0.05, 0.2, 0.5] {
            for rate in [1e4, 1e5, 4e5, 1e6, 1e7, 1e8] {
                let mut governor = Governor::new(limit, HIT);
                let mut busy = [Busy::new(7, rate)];
                let before = rate * HIT.as_secs_f64();
                let share = before / (1.0 + before);
                let (overs, offs) = run(&mut governor, 0.0, 3.0, &mut busy);
                if share <= limit {
                    assert!(overs.is_empty() && offs[&7] == 0, "{limit} {rate}");
                    continue;
                }
                let [(at, over)] = overs[..] else {
                    panic!("{limit} {rate}: {overs:?}")
                };
                assert!((2.0..3.0).contains(&at), "{at}");
                assert!((over.share - share).abs() < 0.01, "{over:?} {share}");
                // Now over many cycles.
                busy[0].work = 0.0;
                let (overs, _) = run(&mut governor, 3.0, 600.0, &mut busy);
                assert!(overs.is_empty(), "turns begin once");
                let paid = 1.0 - busy[0].work / 600.0;
                assert!(paid < limit * 1.15 + 0.002, "{limit} {rate}: {paid}");
                // It is not left alone more than is needed, unless it can't be probed for less time.
                assert!(paid > limit * 0.5, "{limit} {rate}: {paid}");
            }
        }
    }

    /// Check that where turning takes long, it is done less often, and the limit is kept all the same.
    #[test]
    fn turning_takes_little_of_the_time() {
        for many in [1, 3] {
            let mut governor = Governor::new(0.05, HIT);
            let mut busy: Vec<Busy> = (0..many).map(|pid| Busy::new(pid, 1e7)).collect();
            let took = Duration::from_millis(400);
            let mut now = 3.0;
            run(&mut governor, 0.0, now, &mut busy);
            // Soon, too, though it is learned only then how long a turn takes.
            for (seconds, most) in [(20.0, 0.2), (600.0, 0.06)] {
                busy.iter_mut().for_each(|it| it.work = 0.0);
                let (mut duty_cycles, end) = (0, now + seconds);
                while now < end {
                    let before = governor.off();
                    run(&mut governor, now, 0.05, &mut busy);
                    now += TICK.as_secs_f64();
                    if governor.off() != before {
                        duty_cycles += 1;
                        governor.turned(took);
                    }
                }
                let turned = f64::from(duty_cycles) * took.as_secs_f64() / seconds;
                assert!(turned > 0.01 && turned < most, "{many}: {turned}");
                for it in &busy {
                    let paid = 1.0 - it.work / seconds;
                    assert!(paid > 0.02 && paid < 0.1, "{many}: {paid}");
                }
            }
        }
    }

    /// Check that only those who are over the limit are left alone.
    #[test]
    fn leaves_the_others_as_they_are() {
        let mut governor = Governor::new(0.05, HIT);
        let mut busy = [Busy::new(1, 1e7), Busy::new(2, 5e4), Busy::new(3, 0.0)];
        let (overs, offs) = run(&mut governor, 0.0, 60.0, &mut busy);
        assert_eq!(overs.len(), 1);
        assert!(offs[&1] > 500 && offs[&2] == 0 && offs[&3] == 0, "{offs:?}");
    }

    /// Check that a burst is no reason, however often there is one.
    #[test]
    fn bursts_are_none_of_its_business() {
        let mut governor = Governor::new(0.05, HIT);
        let mut busy = [Busy::new(1, 1e7)];
        for second in 0..20 {
            busy[0].hits_per_second = if second % 2 == 0 { 1e7 } else { 1e3 };
            let (overs, _) = run(&mut governor, f64::from(second), 1.0, &mut busy);
            assert!(overs.is_empty());
        }
    }

    /// Check that who calms down is probed all the time again, and stays it where he is just below the limit;
    /// and that one at the limit does not flutter.
    #[test]
    fn hysteresis() {
        let mut governor = Governor::new(0.05, HIT);
        let mut busy = [Busy::new(1, 1e6)];
        let (overs, _) = run(&mut governor, 0.0, 10.0, &mut busy);
        assert_eq!(overs.len(), 1);
        // Between the margin and the limit: stays in turns, most of the time on.
        busy[0].hits_per_second = 0.045 / (1.0 - 0.045) / HIT.as_secs_f64();
        run(&mut governor, 10.0, 20.0, &mut busy);
        let (overs, offs) = run(&mut governor, 30.0, 60.0, &mut busy);
        assert!(
            overs.is_empty() && offs[&1] > 0 && offs[&1] < 100,
            "{offs:?}"
        );
        busy[0].hits_per_second = 5e4;
        run(&mut governor, 90.0, 10.0, &mut busy);
        let (_, offs) = run(&mut governor, 100.0, 60.0, &mut busy);
        assert_eq!(offs[&1], 0);
        // And again.
        busy[0].hits_per_second = 1e7;
        let (overs, _) = run(&mut governor, 160.0, 10.0, &mut busy);
        assert_eq!(overs.len(), 1);
    }

    /// Check that what is left of those who ended, or whose number another process has, is nothing.
    #[test]
    fn the_dead_are_forgotten() {
        let mut governor = Governor::new(0.05, HIT);
        run(
            &mut governor,
            0.0,
            10.0,
            &mut [Busy::new(1, 1e8), Busy::new(2, 1e8)],
        );
        // 1 is gone, 2 another one.
        run(&mut governor, 10.0, 0.5, &mut [Busy::new(2, 1e3)]);
        assert!(governor.off().is_empty());
        assert!(governor.watched.keys().all(|pid| *pid == 2), "{governor:?}");
    }

    /// Check that a process which rarely runs is left as it is, whatever share of that is ours.
    #[test]
    fn idle_processes_are_not_worth_it() {
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
