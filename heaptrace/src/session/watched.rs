//! The overhead of one process, and the state of its duty cycle.
//!
//! Part of the session, used by the governor. Pure: must not know the kernel program, how a process is
//! paused, or what time it is.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Shortest time over which a share is measured: less than the time between two ticks, one of which may come a bit early.
const LOOK: Duration = Duration::from_millis(20);

/// The same for a process that is below the limit.
const LONG_LOOK: Duration = Duration::from_millis(500);

/// Seconds of a process at the limit: when probes took more than that beyond the limit, it gets a duty cycle. A process
/// has as many as it has used processor time: a young one may end before pauses make up for more.
const CREDIT: RangeInclusive<f64> = 1.0..=5.0;

/// Seconds that a watched process spends in probes before it is paused, whatever its debt: with less, the report would hardly
/// have it. The debt may be from the time when the probes were attached, and nothing was recorded.
const LEAST_PAID: f64 = 0.01;

/// How long a process must be below the limit before it loses its duty cycle.
const PATIENCE: Duration = Duration::from_secs(2);

/// The shortest time that a process is probed for, and paused for: below it, switching costs more than it
/// saves.
const LEAST_ON: Duration = Duration::from_millis(100);

/// The longest time that a process is paused for.
const MOST_OFF: Duration = Duration::from_secs(120);

/// Probe hits that take less than this share of one processor don't matter, however idle the process is.
const WORTH_IT: f64 = 0.01;

/// A process below this part of the limit is probed all the time again.
const MARGIN: f64 = 0.8;

/// The terms that are the same for all processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The share of a process's time that may go into probes.
    pub(super) limit: f64,
    /// Seconds that a probe hit takes.
    pub(super) hit: f64,
    /// Length of a duty cycle: the time from one pause to the next.
    pub(super) cycle: Duration,
    /// The part of its credit that a process may use up before its first pause.
    pub(super) credit: f64,
    /// Whether a pause also makes up for the time of being probed after it.
    pub(super) pays_ahead: bool,
}

/// The result of a look at a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing has to be done.
    Watch,
    /// It was over the limit for long enough, and gets a duty cycle from now on.
    OverLimit,
}

/// What probes took of processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Paid {
    /// Seconds in probes.
    pub(super) probes: f64,
    /// Seconds of processor time, those in probes included.
    pub(super) used: f64,
}

impl Paid {
    pub(super) fn add(&mut self, other: Self) {
        self.probes += other.probes;
        self.used += other.used;
    }

    /// The share of the processor time; 0 if none was used.
    pub(super) fn share(&self) -> f64 {
        if self.used > 0.0 {
            self.probes / self.used
        } else {
            0.0
        }
    }
}

/// A process that has probe hits.
///
/// What probes take beyond the limit is its debt. A process whose debt exceeds its credit gets a duty cycle: it is
/// probed for a while, and then paused until the limit holds again for all of its time. A process that stays
/// below the limit by a margin, for two seconds, is probed all the time again.
#[derive(Debug)]
pub(super) struct Watched {
    phase: Phase,
    /// When the current measurement began.
    since: Duration,
    /// The processor time of the process at that moment.
    time: Duration,
    /// Its processor time when it was last seen.
    seen: Duration,
    /// The probe hits since the current measurement began.
    hits: u64,
    /// The share of its time that went into probes, while it was probed.
    share: f64,
    /// Seconds that probes took beyond the limit, and that no pause has made up for. Less than none: a pause has made up
    /// for what is still to come.
    debt: f64,
    /// The sum of all measurements.
    paid: Paid,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Probed all the time, and without hits in the last measurement.
    Idle,
    /// Probed all the time.
    Always,
    /// A duty cycle: probed until then; below the limit for so long.
    On { until: Duration, below: Duration },
    /// A duty cycle: paused from then on.
    Off { from: Duration },
}

/// A measurement.
struct Measured {
    passed: Duration,
    paid: Paid,
    /// Whether the hits take enough of a processor to matter.
    is_worth_it: bool,
}

impl Watched {
    /// A process whose first hits were just seen. Its processor time while they came is not known, so they
    /// are a debt and nothing else. With the first tick of a run they are all hits since attaching began.
    pub(super) fn new(now: Duration, time: Duration, hits: u64, terms: Terms) -> Self {
        Self {
            phase: Phase::Always,
            since: now,
            time,
            seen: time,
            hits: 0,
            share: 0.0,
            debt: hits as f64 * terms.hit,
            paid: Paid::default(),
        }
    }

    /// Takes in probe hits. Those that end an idle time begin a measurement: when they came is not known.
    pub(super) fn add_hits(&mut self, now: Duration, hits: u64, terms: Terms) {
        if self.phase == Phase::Idle {
            self.paid.probes += hits as f64 * terms.hit;
            self.phase = Phase::Always;
            self.since = now;
        } else {
            self.hits += hits;
        }
    }

    /// Takes in the processor time so far. Returns whether it is the same process: one that has used less is another
    /// one with its pid.
    pub(super) fn see(&mut self, time: Duration) -> bool {
        let is_same = time >= self.seen;
        if is_same {
            self.seen = time;
        }
        is_same
    }

    /// The share of its time that went into probes, while it was probed.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// What probes took of its processor time since it was first watched.
    pub(super) fn paid(&self, terms: Terms) -> Paid {
        let mut paid = self.paid;
        paid.add(self.since_begin(terms));
        paid
    }

    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Off { .. })
    }

    pub(super) fn has_duty_cycle(&self) -> bool {
        matches!(self.phase, Phase::On { .. } | Phase::Off { .. })
    }

    /// Looks at the process, if a measurement or a pause is over by now.
    pub(super) fn look(&mut self, now: Duration, terms: Terms) -> Look {
        let is_over = match self.phase {
            Phase::Idle | Phase::Off { .. } => true,
            Phase::Always => now.saturating_sub(self.since) >= LOOK,
            Phase::On { until, .. } => now >= until,
        };
        if !is_over {
            return Look::Watch;
        }
        let owed = self.debt > 0.0 && self.share > 0.0;
        let measured = self.measure(now, terms);
        let share = measured.paid.share();
        match self.phase {
            Phase::Idle => {}
            Phase::Always if measured.paid.probes == 0.0 && self.debt == 0.0 => {
                self.phase = Phase::Idle;
            }
            Phase::Always => {
                if measured.is_worth_it {
                    self.share = if owed { mean(self.share, share) } else { share };
                }
                let used = self.seen.as_secs_f64();
                let credit =
                    used.clamp(*CREDIT.start(), *CREDIT.end()) * terms.credit * terms.limit;
                if self.debt > credit && self.paid.probes >= LEAST_PAID {
                    self.phase = Phase::Off { from: now };
                    return Look::OverLimit;
                }
            }
            Phase::On { below, .. } => {
                if share <= terms.limit * MARGIN || !measured.is_worth_it {
                    let below = below + measured.passed;
                    self.phase = if below >= PATIENCE {
                        Phase::Always
                    } else {
                        Phase::On {
                            until: now + LONG_LOOK,
                            below,
                        }
                    };
                } else {
                    self.share = mean(self.share, share);
                    self.phase = Phase::Off { from: now };
                }
            }
            Phase::Off { from } => {
                let off = now.saturating_sub(from);
                if (off >= LEAST_ON && self.debt <= self.least_debt(terms)) || off >= MOST_OFF {
                    self.phase = Phase::On {
                        until: now + self.on(terms),
                        below: Duration::ZERO,
                    };
                }
            }
        }
        Look::Watch
    }

    /// What probes took since the current measurement began. No process pays more than it uses.
    fn since_begin(&self, terms: Terms) -> Paid {
        let used = self.seen.saturating_sub(self.time).as_secs_f64();
        Paid {
            probes: (self.hits as f64 * terms.hit).min(used),
            used,
        }
    }

    /// Ends the current measurement, and begins a new one.
    fn measure(&mut self, now: Duration, terms: Terms) -> Measured {
        let passed = now.saturating_sub(self.since);
        let paid = self.since_begin(terms);
        let worth_it = WORTH_IT * passed.as_secs_f64();
        let allowed = (terms.limit * paid.used).max(worth_it);
        self.debt = (self.debt + paid.probes - allowed).max(self.least_debt(terms));
        self.paid.add(paid);
        self.since = now;
        self.time = self.seen;
        self.hits = 0;
        Measured {
            passed,
            paid,
            is_worth_it: paid.probes >= worth_it,
        }
    }

    /// The debt that a pause ends with. A process that ends soon, as compilers do, has not paid more than the limit if
    /// its pauses pay ahead.
    fn least_debt(&self, terms: Terms) -> f64 {
        if !self.is_paused() || !terms.pays_ahead {
            return 0.0;
        }
        let beyond = (self.share - terms.limit).max(0.0);
        -beyond * self.on(terms).as_secs_f64()
    }

    /// How long to probe the process before it is paused again.
    fn on(&self, Terms { limit, cycle, .. }: Terms) -> Duration {
        let part = (limit / self.share.max(limit)).min(1.0);
        cycle.mul_f64(part).max(LEAST_ON)
    }
}

/// A mean that follows the newer value.
fn mean(before: f64, now: f64) -> f64 {
    (before + now) / 2.0
}
