//! The overhead of one process, and the state of its duty cycle.
//!
//! Part of the session, used by the governor. Pure: must not know the kernel program, how a process is
//! paused, or what time it is.

use std::time::Duration;

/// Shortest time over which a share is measured, unless a duty cycle needs a shorter one.
const LOOK: Duration = Duration::from_millis(500);

/// How long a process must be over the limit before it gets a duty cycle, and below before it loses it.
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
}

/// The result of a look at a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It had no hits, and needs not be watched.
    Idle,
    /// It must be watched further.
    Watch,
    /// It was over the limit for long enough, and gets a duty cycle from now on.
    OverLimit,
}

/// A process that has probe hits.
///
/// A process that stays over the limit for two seconds gets a duty cycle: it is probed for a while and paused
/// for a while. The ratio keeps its overhead to the limit, according to the last measurements while it was
/// probed. A process that stays below the limit by a margin, for two seconds, is probed all the time again.
#[derive(Debug)]
pub(super) struct Watched {
    phase: Phase,
    /// When the current measurement began.
    since: Duration,
    /// The processor time of the process at that moment.
    time: Duration,
    /// The probe hits since then.
    hits: u64,
    /// The share of its time that went into probes, while it was probed.
    share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Probed all the time; over the limit for so long.
    Always { over: Duration },
    /// A duty cycle: probed until then; below the limit for so long.
    On { until: Duration, below: Duration },
    /// A duty cycle: paused until then.
    Off { until: Duration },
}

impl Watched {
    pub(super) fn new(now: Duration, time: Duration) -> Self {
        Self {
            phase: Phase::Always {
                over: Duration::ZERO,
            },
            since: now,
            time,
            hits: 0,
            share: 0.0,
        }
    }

    pub(super) fn add_hits(&mut self, hits: u64) {
        self.hits += hits;
    }

    /// The processor time of the process at the last measurement.
    pub(super) fn time(&self) -> Duration {
        self.time
    }

    /// The share of its time that went into probes, while it was probed.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Off { .. })
    }

    pub(super) fn has_duty_cycle(&self) -> bool {
        !matches!(self.phase, Phase::Always { .. })
    }

    /// Looks at the probe hits, if a measurement or a pause is over by now. `time` is the processor time so
    /// far.
    pub(super) fn look(&mut self, now: Duration, time: Duration, terms: Terms) -> Look {
        let passed = now.saturating_sub(self.since);
        match self.phase {
            Phase::Off { until } => {
                if now >= until {
                    self.begin(now, time);
                    self.phase = Phase::On {
                        until: now + self.on(terms),
                        below: Duration::ZERO,
                    };
                }
                return Look::Watch;
            }
            Phase::On { until, .. } if now < until => return Look::Watch,
            Phase::Always { .. } if passed < LOOK => return Look::Watch,
            Phase::On { .. } | Phase::Always { .. } => {}
        }
        let hits = self.hits;
        let paid = hits as f64 * terms.hit;
        let used = time.saturating_sub(self.time).as_secs_f64();
        // Measurements are never exact; no process pays more than it uses.
        let share = if used > 0.0 {
            (paid / used).min(1.0)
        } else {
            0.0
        };
        let is_worth_it = paid >= WORTH_IT * passed.as_secs_f64();
        self.begin(now, time);
        match self.phase {
            Phase::Always { over } if share > terms.limit && is_worth_it => {
                self.share = if over.is_zero() {
                    share
                } else {
                    mean(self.share, share)
                };
                let over = over + passed;
                self.phase = Phase::Always { over };
                if over >= PATIENCE {
                    self.pause(now, self.on(terms), terms.limit);
                    return Look::OverLimit;
                }
            }
            Phase::Always { .. } => {
                self.phase = Phase::Always {
                    over: Duration::ZERO,
                };
                return if hits > 0 { Look::Watch } else { Look::Idle };
            }
            Phase::On { below, .. } => {
                if share <= terms.limit * MARGIN || !is_worth_it {
                    let below = below + passed;
                    self.phase = if below >= PATIENCE {
                        Phase::Always {
                            over: Duration::ZERO,
                        }
                    } else {
                        Phase::On {
                            until: now + LOOK,
                            below,
                        }
                    };
                } else {
                    self.share = mean(self.share, share);
                    self.pause(now, passed, terms.limit);
                }
            }
            Phase::Off { .. } => {}
        }
        Look::Watch
    }

    /// Begins a new measurement.
    fn begin(&mut self, now: Duration, time: Duration) {
        self.since = now;
        self.time = time;
        self.hits = 0;
    }

    /// How long to probe the process before it is paused again.
    fn on(&self, Terms { limit, cycle, .. }: Terms) -> Duration {
        let part = (limit / self.share.max(limit)).min(1.0);
        cycle.mul_f64(part).max(LEAST_ON)
    }

    /// Pauses the process after it was probed for a time of `on`. The length of the pause keeps it to the
    /// limit.
    fn pause(&mut self, now: Duration, on: Duration, limit: f64) {
        let times = (self.share / limit - 1.0).max(0.0);
        let off = on.mul_f64(times).clamp(LEAST_ON, MOST_OFF);
        self.phase = Phase::Off { until: now + off };
    }
}

/// A mean that follows the newer value.
fn mean(before: f64, now: f64) -> f64 {
    (before + now) / 2.0
}
