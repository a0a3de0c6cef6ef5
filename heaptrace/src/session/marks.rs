//! Waits for what makes marks in a run: a timer, and SIGUSR2.
//!
//! Part of the session. Must not know what a mark does.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::config::RunConfig;
use crate::join::MarkCause;

/// What makes marks.
pub(super) struct MarkRequests {
    signal: Signal,
    timer: Option<Interval>,
}

impl MarkRequests {
    /// Listens for signals.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            signal: signal(SignalKind::user_defined2()).context("can't listen for signals")?,
            timer: None,
        })
    }

    /// Starts the timer, if the run has one.
    pub(super) fn begin(&mut self, config: &RunConfig) {
        self.timer = config.mark_every.and_then(|every| {
            // A time beyond all clocks never comes.
            let first = Instant::now().checked_add(every)?;
            let mut timer = tokio::time::interval_at(first, every);
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
            Some(timer)
        });
    }

    /// Waits for the next mark. The future may be dropped, and this called again.
    pub(super) async fn due(&mut self) -> MarkCause {
        let Self { signal, timer } = self;
        let timer = async move {
            match timer {
                Some(timer) => {
                    timer.tick().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = signal.recv() => MarkCause::Signal,
            () = timer => MarkCause::Timer,
        }
    }
}
