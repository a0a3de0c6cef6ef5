//! Leaves processes alone where tracing costs them too much, and says so.
//!
//! Part of the session: brings together who decides that, the probes, the kernel program and what is joined.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::drain::Drain;
use super::governor::{Governor, Over, TICK};
use super::targets;
use crate::config::RunConfig;
use crate::join::{Joiner, Loss};
use crate::kernel::program::Program;
use crate::probes::attach::{Probes, Reach};
use crate::probes::guardian::{Guardian, Heir};
use crate::sys;
use crate::text;

/// Processes that are named on standard error at most.
const MOST_NAMED: usize = 10;

/// How long a call may take that was under way when its entry was closed, before what is known of it goes.
const GRACE: Duration = Duration::from_millis(2);

/// In how many ticks the programs' own time is measured once: the kernel's clock is read twice for it each
/// time that one runs.
const MEASURED: u64 = 20;

/// Runs that are enough to tell.
const ENOUGH_RUNS: u64 = 500;

/// See the head of this file.
pub(super) struct DutyCycles {
    governor: Governor,
    ticks: tokio::time::Interval,
    hit: Hit,
    /// Whether the targets and what they start are left alone as one.
    is_one: bool,
    /// Who is left alone.
    off: BTreeSet<u32>,
    /// Who is left alone with them: all that belong together, or those for whom there were no events of their own.
    with_them: Vec<u32>,
    over: Vec<Over>,
    most: u32,
}

impl DutyCycles {
    /// Measures what a hit costs; nothing where the user does not want to know.
    pub(super) fn new(
        config: &RunConfig,
        probes: &mut Probes,
        guardian: &Guardian,
    ) -> Result<Option<Self>> {
        let Some(most) = config.max_overhead else {
            return Ok(None);
        };
        let trap = probes
            .measure_hit()
            .context("can't measure what a probe costs; --max-overhead off does without")?;
        tracing::info!("a hit of a probe takes {} ns here", trap.as_nanos());
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        Ok(Some(Self {
            governor: Governor::new(f64::from(most) / 1e4, trap),
            ticks,
            hit: Hit::new(trap, guardian.heir()?),
            is_one: targets::reach(config) != Reach::All,
            off: BTreeSet::new(),
            with_them: Vec::new(),
            over: Vec::new(),
            most,
        }))
    }

    /// Waits until it is time to look again.
    pub(super) async fn due(&mut self) {
        self.ticks.tick().await;
    }

    /// Looks, and does what is to be done.
    pub(super) fn look(
        &mut self,
        at_ns: u64,
        drain: &mut Drain,
        program: &mut Program,
        probes: &mut Probes,
        joiner: &mut Joiner,
    ) -> Result<()> {
        if self.hit.tick(program) {
            self.governor.set_hit(self.hit.time());
        }
        joiner.set_overhead(self.hit.time().as_nanos() as u64, self.most);
        let hits = program.take_hits()?;
        let now = Duration::from_nanos(at_ns);
        for over in self.governor.tick(now, &hits, sys::process_time) {
            self.say(over);
        }
        let off = self.governor.off();
        if off == self.off {
            return Ok(());
        }
        let begun = Instant::now();
        if self.is_one {
            self.turn_all(&off, probes, joiner);
        } else {
            // The kernel may be busy with the probes of others for long, and meanwhile the ring fills.
            match drain.during(joiner, || probes.pause(&off))? {
                Ok(unlucky) => self.with_them.extend(unlucky),
                // No descriptor, or no memory in some group: what is left to do is tried again with the next look.
                Err(error) => {
                    tracing::info!("can't leave processes alone, or reach them again: {error}");
                    joiner.lost_one(Loss::DutyCycleFailed);
                    return Ok(());
                }
            }
        }
        let took = begun.elapsed();
        tracing::debug!("left alone: {off:?}, turned in {took:?}");
        self.governor.turned(took);
        let before = std::mem::replace(&mut self.off, off);
        let mut new: BTreeSet<u32> = self.off.difference(&before).copied().collect();
        new.extend(&self.with_them);
        if !new.is_empty() && !self.off.is_empty() {
            std::thread::sleep(GRACE);
            program.forget_calls(|pid| new.contains(&pid))?;
            drain.pass(joiner);
            let time = sys::monotonic_now();
            for pid in new {
                let share = self.over.iter().find(|over| over.pid == pid);
                let share = share.map_or(0.0, |over| over.share);
                joiner.pause(pid, (share * 1e4) as u32, at_ns, time);
            }
        }
        for pid in before.difference(&self.off) {
            joiner.resume(*pid, at_ns);
        }
        if self.off.is_empty() {
            for pid in self.with_them.drain(..) {
                joiner.resume(pid, at_ns);
            }
        }
        Ok(())
    }

    /// Leaves the targets and what they started alone, or reaches them again.
    fn turn_all(&mut self, off: &BTreeSet<u32>, probes: &mut Probes, joiner: &mut Joiner) {
        if self.off.is_empty() {
            probes.leave_targets_alone();
            self.with_them = joiner.followed();
        } else if off.is_empty() {
            for pid in joiner.followed() {
                if let Err(error) = probes.reach_again(pid) {
                    tracing::warn!("{error:#}");
                    joiner.lost_one(Loss::DutyCycleFailed);
                }
            }
        }
    }

    /// Remembers who is probed in turns, and why, and says so.
    fn say(&mut self, over: Over) {
        self.over.retain(|it| it.pid != over.pid);
        self.over.push(over);
        let limit = f64::from(self.most) / 100.0;
        match self.over.len().cmp(&MOST_NAMED) {
            std::cmp::Ordering::Less => {
                let comm = std::fs::read_to_string(format!("/proc/{}/comm", over.pid));
                tracing::warn!(
                    "{}[{}] is probed in turns from now on: {:.0} % of its processor time went into probes, \
                     more than {limit} % (--max-overhead)",
                    text::escape(comm.unwrap_or_default().trim_end()),
                    over.pid,
                    over.share * 100.0,
                );
            }
            std::cmp::Ordering::Equal => {
                tracing::warn!("more processes are probed in turns; the report names them");
            }
            std::cmp::Ordering::Greater => {}
        }
    }
}

/// What a hit takes: its trap, and the program that runs in it.
struct Hit {
    trap: Duration,
    /// Who has the right to let the kernel count.
    guardian: Heir,
    /// The programs' mean time, measured some times: the least of these counts, since a program that is
    /// preempted seems to take longer.
    programs: VecDeque<Duration>,
    ticks: u64,
    /// While the kernel counts: what had been counted before.
    counting: Option<(OwnedFd, (u64, u64))>,
}

impl Hit {
    fn new(trap: Duration, guardian: Heir) -> Self {
        Self {
            trap,
            guardian,
            programs: VecDeque::new(),
            ticks: 0,
            counting: None,
        }
    }

    fn time(&self) -> Duration {
        self.trap + self.programs.iter().min().copied().unwrap_or_default()
    }

    /// Measures, every now and then. Whether something was learned.
    fn tick(&mut self, program: &Program) -> bool {
        const KEPT: usize = 5;
        let counted = self.counting.take().map(|(_, before)| {
            let (count, ns) = program.runs();
            (count.saturating_sub(before.0), ns.saturating_sub(before.1))
        });
        self.ticks += 1;
        if self.ticks % MEASURED == 1 {
            // Without the right to ask for it, or with an old kernel, the trap has to do.
            let counting = self.guardian.count_runs().ok();
            self.counting = counting.map(|it| (it, program.runs()));
        }
        let Some((count, ns)) = counted.filter(|(count, _)| *count >= ENOUGH_RUNS) else {
            return false;
        };
        self.programs.push_back(Duration::from_nanos(ns / count));
        if self.programs.len() > KEPT {
            self.programs.pop_front();
        }
        true
    }
}
