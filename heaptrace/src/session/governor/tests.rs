//! Tests of the governor, with processes that are always busy and take no time.

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

/// Check that processes that are reached pay no more than the limit whenever a pause begins after the first one: the pause
/// before has made up for the time of being probed.
#[test]
fn reached_processes_pay_ahead() {
    for rate in [4e5, 1e6, 1e7] {
        let mut governor = Governor::one_by_one(0.05, HIT);
        let mut busy = [Busy::new(7, rate)];
        busy[0].time = 1.1;
        let (mut now, mut pauses) = (0.0, 0);
        while pauses < 5 {
            let was_paused = !governor.paused().is_empty();
            run(&mut governor, now, 0.05, &mut busy);
            now += TICK.as_secs_f64();
            if governor.paused().is_empty() || was_paused {
                continue;
            }
            pauses += 1;
            let paid = 1.0 - busy[0].work / now;
            assert!(pauses == 1 || paid < 0.06, "{rate}, {pauses}: {paid}");
        }
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
