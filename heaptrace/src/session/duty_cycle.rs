//! Duty cycles: pauses processes whose tracing costs too much, and resumes them.
//!
//! Part of the session. Connects the governor, which decides, with the probes, the kernel program and join.
//! Must not know how the decision is made.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::governor::{Governor, OverLimit, TICK};
use super::hit_cost::{HitCost, RunTime};
use super::run::Run;
use super::targets;
use super::watched::Paid;
use crate::config::RunConfig;
use crate::join::{Loss, Overhead};
use crate::probes::attach::Probes;
use crate::probes::target_events::Reach;
use crate::proc::processes;
use crate::sys;
use crate::text;

/// Most processes that are named on standard error.
const MOST_NAMED: usize = 10;

/// Time for calls to return that were under way when their entry probe was closed. Then their state is removed.
const GRACE: Duration = Duration::from_millis(2);

/// Time between two ticks just after processes were reached: those that are over the limit are paused sooner.
const HURRIED_TICK: Duration = Duration::from_millis(25);

/// How long that lasts.
const HURRY: Duration = Duration::from_millis(200);

/// Pauses and resumes processes to keep the overhead below the limit.
pub(super) struct DutyCycles {
    governor: Governor,
    /// When the next tick is due.
    next: Instant,
    hurried_until: Instant,
    hit_cost: HitCost,
    /// Whether the targets and their children are paused as one.
    is_one: bool,
    /// The processes that the governor has paused.
    paused: BTreeSet<u32>,
    /// Processes that are paused along with them: all of a family, or those that could not get events of
    /// their own.
    paused_along: Vec<u32>,
    over: Vec<OverLimit>,
    /// What a message to a process over the limit says of the fast path.
    advice: &'static str,
    /// The limit, in hundredths of a percent; `None` if what probes cost is only measured.
    limit: Option<u32>,
}

impl DutyCycles {
    /// Measures the cost of a probe hit. `None` if that fails in a run without a limit: its report has no overhead.
    pub(super) fn new(
        config: &RunConfig,
        probes: &mut Probes,
        run_time: RunTime,
    ) -> Result<Option<Self>> {
        let limit = config.max_overhead;
        let trap = match (probes.measure_hit(), limit) {
            (Ok(trap), _) => trap,
            (Err(error), None) => {
                tracing::info!("can't measure the cost of a probe hit: {error}");
                return Ok(None);
            }
            (Err(error), Some(_)) => {
                return Err(error).context(
                    "can't measure the cost of a probe hit; --max-overhead off traces without a limit",
                );
            }
        };
        tracing::info!("a probe hit takes {} ns on this machine", trap.as_nanos());
        // Without a limit, processes are measured and never paused.
        let share = limit.map_or(f64::INFINITY, |it| f64::from(it) / 1e4);
        let reach = targets::reach(config);
        let governor = match reach {
            Reach::OneByOne => Governor::one_by_one(share, trap),
            Reach::Tree | Reach::Processes | Reach::All => Governor::new(share, trap),
        };
        let now = Instant::now();
        Ok(Some(Self {
            governor,
            next: now,
            hurried_until: now,
            hit_cost: HitCost::new(trap, run_time),
            is_one: matches!(reach, Reach::Tree | Reach::Processes),
            paused: BTreeSet::new(),
            paused_along: Vec::new(),
            over: Vec::new(),
            advice: if config.fast {
                ""
            } else {
                "; --fast traces most such processes all the time (see docs/fast.md)"
            },
            limit,
        }))
    }

    /// Waits until the next tick.
    pub(super) async fn due(&mut self) {
        tokio::time::sleep_until(self.next.into()).await;
    }

    /// Looks at hits more often from now on, for a while: processes were just reached, and may pay much.
    pub(super) fn hurry(&mut self) {
        let now = Instant::now();
        self.hurried_until = now + HURRY;
        self.next = self.next.min(now + HURRIED_TICK);
    }

    /// Looks at the probe hits since the last tick, by process id, and pauses and resumes processes.
    pub(super) fn tick(
        &mut self,
        at_ns: u64,
        hits: &HashMap<u32, u64>,
        run: &mut Run,
    ) -> Result<()> {
        let begun = Instant::now();
        let pause = if begun < self.hurried_until {
            HURRIED_TICK
        } else {
            TICK
        };
        self.next = begun + pause;
        let now = Duration::from_nanos(at_ns);
        if self.hit_cost.tick(now, &run.program) {
            self.governor.set_hit(self.hit_cost.time());
        }
        for over in self.governor.tick(now, hits, sys::process_time) {
            self.add_over(over);
        }
        self.report(run);
        let paused = self.governor.paused();
        if paused == self.paused {
            return Ok(());
        }
        let begun = Instant::now();
        if !self.switch_probes(&paused, run)? {
            return Ok(());
        }
        let took = begun.elapsed();
        tracing::debug!("paused: {paused:?}, switched in {took:?}");
        self.governor.switched(took);
        let before = std::mem::replace(&mut self.paused, paused);
        self.pause_new(&before, at_ns, run)?;
        self.resume_old(&before, at_ns, run);
        Ok(())
    }

    /// Reports what probes have cost so far to join.
    fn report(&self, run: &mut Run) {
        let Paid { probes, used } = self.governor.paid();
        run.joiner.set_overhead(Overhead {
            hit_ns: self.hit_cost.time().as_nanos() as u64,
            limit: self.limit.unwrap_or_default(),
            probes_ns: (probes * 1e9) as u64,
            used_ns: (used * 1e9) as u64,
        });
        for (pid, share) in self.governor.reached() {
            run.joiner.set_reached(pid, (share * 1e4) as u32);
        }
    }

    /// Makes the probes reach all processes but these; returns whether that worked.
    fn switch_probes(&mut self, paused: &BTreeSet<u32>, run: &mut Run) -> Result<bool> {
        if self.is_one {
            self.switch_family(paused, run);
            return Ok(true);
        }
        // The kernel may take long if it is busy with other probes, and the ring fills meanwhile.
        match run.during(|_, probes| probes.pause(paused))? {
            Ok(along) => {
                self.paused_along.extend(along);
                Ok(true)
            }
            // No descriptors, or no memory in some control group. The next tick tries again.
            Err(error) => {
                tracing::info!("can't pause or resume processes: {error}");
                run.joiner.lost_one(Loss::DutyCycleFailed);
                Ok(false)
            }
        }
    }

    /// Pauses the targets and their children, or resumes them.
    fn switch_family(&mut self, paused: &BTreeSet<u32>, run: &mut Run) {
        if self.paused.is_empty() {
            run.probes.pause_targets();
            self.paused_along = run.joiner.followed();
        } else if paused.is_empty() {
            for pid in run.joiner.followed() {
                if let Err(error) = run.probes.resume_target(pid) {
                    tracing::warn!("{error:#}");
                    run.joiner.lost_one(Loss::DutyCycleFailed);
                }
            }
        }
    }

    /// Reports newly paused processes to join, and removes their pending calls.
    fn pause_new(&self, before: &BTreeSet<u32>, at_ns: u64, run: &mut Run) -> Result<()> {
        let mut new: BTreeSet<u32> = self.paused.difference(before).copied().collect();
        new.extend(&self.paused_along);
        if new.is_empty() || self.paused.is_empty() {
            return Ok(());
        }
        std::thread::sleep(GRACE);
        run.program.forget_calls(|pid| new.contains(&pid))?;
        run.pass();
        // A block that is recorded after the pause would count as one that was allocated then.
        run.flush();
        let time = sys::monotonic_now();
        for pid in new {
            let share = self.over.iter().find(|over| over.pid == pid);
            let share = share.map_or(0.0, |over| over.share);
            run.joiner.pause(pid, (share * 1e4) as u32, at_ns, time);
        }
        Ok(())
    }

    /// Reports resumed processes to join.
    fn resume_old(&mut self, before: &BTreeSet<u32>, at_ns: u64, run: &mut Run) {
        for pid in before.difference(&self.paused) {
            run.joiner.resume(*pid, at_ns);
        }
        if self.paused.is_empty() {
            for pid in self.paused_along.drain(..) {
                run.joiner.resume(pid, at_ns);
            }
        }
    }

    /// Remembers a process that got a duty cycle, and names it on standard error.
    fn add_over(&mut self, over: OverLimit) {
        self.over.retain(|it| it.pid != over.pid);
        self.over.push(over);
        let limit = f64::from(self.limit.unwrap_or_default()) / 100.0;
        match self.over.len().cmp(&MOST_NAMED) {
            std::cmp::Ordering::Less => {
                let name = processes::name(over.pid).unwrap_or_default();
                tracing::warn!(
                    "{}[{}] is traced on a duty cycle from now on, a part of the time only: {:.0} % of its processor \
                     time went into probes, more than {limit} % (--max-overhead){}",
                    text::escape(&name),
                    over.pid,
                    over.share * 100.0,
                    self.advice,
                );
            }
            std::cmp::Ordering::Equal => {
                tracing::warn!("more processes are traced on a duty cycle; the report names them");
            }
            std::cmp::Ordering::Greater => {}
        }
    }
}
