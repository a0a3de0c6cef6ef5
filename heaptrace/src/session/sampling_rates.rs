//! Applies the sampling rates that the rate control decides on, in the kernel program and in join.
//!
//! Part of the session. Must not know how the rates are decided.

use std::time::Instant;

use anyhow::Result;
use heaptrace_common::sampling;
use tokio::time::{Interval, MissedTickBehavior};

use super::rate::{Change, Control, TICK};
use super::run::Run;
use crate::config::RunConfig;
use crate::join::{Note, RateChange};

/// The sampling rates of a run that limits its samples per second.
pub(super) struct SamplingRates {
    control: Control,
    ticks: Interval,
    last_tick: Instant,
    /// Mean bytes between two samples, at the run's own rate.
    mean_bytes: u64,
}

impl SamplingRates {
    /// Sets the first rate; `None` if the run doesn't limit its samples.
    pub(super) fn new(config: &RunConfig, begin: Instant, run: &mut Run) -> Result<Option<Self>> {
        let sampling = config.sampling;
        let Some(limit) = sampling.max_per_second else {
            return Ok(None);
        };
        let first = tokio::time::Instant::now() + TICK;
        let mut ticks = tokio::time::interval_at(first, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let rates = Self {
            control: Control::new(limit, sampling.first_shift),
            ticks,
            last_tick: begin,
            mean_bytes: sampling.mean,
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
        self.ticks.tick().await;
    }

    /// Looks at the samples since the last tick, and changes rates.
    pub(super) fn tick(&mut self, at_ns: u64, run: &mut Run) -> Result<()> {
        let sampled = run.joiner.take_sampled();
        let since = std::mem::replace(&mut self.last_tick, Instant::now()).elapsed();
        let filled = run.joiner.live_blocks() as f64 / f64::from(run.program.max_live());
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
