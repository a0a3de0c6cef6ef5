//! Applies the sampling rates that the rate control decides on, in the kernel program and in join.
//!
//! Part of the session. Must not know how the rates are decided.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use heaptrace_common::sampling;

use super::rate::{Change, Control, TICK};
use super::run::Run;
use crate::config::RunConfig;
use crate::join::{Note, RateChange};
use crate::sys;

/// Processor time that a sample takes of a process on the fast path: three traps, and a walk of the stack, which find little of
/// what they need in the processor's caches if samples are a millisecond apart, and push out what the process needs.
const SAMPLE: Duration = Duration::from_micros(40);

/// A process on the fast path may have as many samples a second, however little processor time it uses: they take 0.4 percent of
/// a processor.
const ALWAYS: f64 = 100.0;

/// Time until the first look at the samples, and until the next one after new processes had some: nothing was known of
/// them, and they may have many more than the limit.
const SOON: Duration = Duration::from_millis(50);

/// The sampling rates of a run that limits its samples per second.
pub(super) struct SamplingRates {
    control: Control,
    /// When the next tick is due.
    next: Instant,
    last_tick: Instant,
    /// Mean bytes between two samples, at the run's own rate.
    mean_bytes: u64,
    fast: Option<FastShare>,
}

/// What samples may take of the processes on the fast path.
struct FastShare {
    /// The most of a process's processor time.
    share: f64,
    /// The processor time of these processes at the last tick.
    used: HashMap<u32, Duration>,
}

impl SamplingRates {
    /// Sets the first rate; `None` if the run doesn't limit its samples.
    pub(super) fn new(config: &RunConfig, begin: Instant, run: &mut Run) -> Result<Option<Self>> {
        let sampling = config.sampling;
        let Some(limit) = sampling.max_per_second else {
            return Ok(None);
        };
        let rates = Self {
            control: Control::new(limit, sampling.first_shift),
            next: Instant::now() + SOON,
            last_tick: begin,
            mean_bytes: sampling.mean,
            fast: sampling.max_share.map(|it| FastShare {
                share: f64::from(it) / 1e4,
                used: HashMap::new(),
            }),
        };
        if sampling.first_shift > 0 {
            let first = Change {
                process: None,
                shift: Some(sampling.first_shift),
                common: sampling.first_shift,
            };
            rates.set_rate(first, 0, run)?;
        }
        Ok(Some(rates))
    }

    /// Waits until the next tick.
    pub(super) async fn due(&mut self) {
        tokio::time::sleep_until(self.next.into()).await;
    }

    /// Looks at the samples since the last tick, and changes rates.
    pub(super) fn tick(&mut self, at_ns: u64, run: &mut Run) -> Result<()> {
        let sampled = run.joiner.take_sampled();
        let now = Instant::now();
        let since = now - std::mem::replace(&mut self.last_tick, now);
        let has_new = sampled.iter().any(|it| it.is_new);
        self.next = now + if has_new { SOON } else { TICK };
        let filled = run.joiner.live_blocks() as f64 / f64::from(run.program.max_live());
        if let Some(fast) = &mut self.fast {
            let sampled = sampled.iter().map(|it| it.pid);
            self.control.limit_each(fast.most(sampled, since, run)?);
        }
        for change in self.control.tick(since, &sampled, filled) {
            self.set_rate(change, at_ns, run)?;
        }
        Ok(())
    }

    /// Changes the rate of a process, or the rate of all processes without their own.
    fn set_rate(&self, change: Change, at_ns: u64, run: &mut Run) -> Result<()> {
        match change.process {
            // If there are too many processes for a rate each, this process keeps the common rate.
            Some((_, pid)) => {
                if let Err(error) = run.program.set_shift_of(pid, change.shift) {
                    tracing::debug!("process {pid} gets no rate of its own: {error:#}");
                    run.joiner.note_one(Note::RatesRefused);
                    return Ok(());
                }
            }
            None => run.program.set_shift(change.shift.unwrap_or(0))?,
        }
        let shift = change.shift.unwrap_or(change.common);
        run.joiner.rate_changed(RateChange {
            at_ns,
            process: change.process.map(|(process, _)| process),
            mean_bytes: sampling::shifted(self.mean_bytes, shift),
        });
        Ok(())
    }
}

impl FastShare {
    /// The most samples a second of each process on the fast path that has some, or had some, by what it has used since the last tick.
    fn most(
        &mut self,
        sampled: impl Iterator<Item = u32>,
        since: Duration,
        run: &Run,
    ) -> Result<HashMap<u32, f64>> {
        let before = std::mem::take(&mut self.used);
        let pids: HashSet<u32> = sampled.chain(before.keys().copied()).collect();
        for pid in pids {
            if run.program.has_hints(pid)?
                && let Some(used) = sys::process_time(pid)
            {
                self.used.insert(pid, used);
            }
        }
        let most = self.used.iter().map(|(pid, used)| {
            // One that is new there counts as if it had used the whole time.
            let before = before.get(pid);
            let busy = before.map_or(since, |before| used.saturating_sub(*before));
            let share = busy.as_secs_f64() / since.as_secs_f64().max(1e-3) * self.share;
            (*pid, (share / SAMPLE.as_secs_f64()).max(ALWAYS))
        });
        Ok(most.collect())
    }
}
