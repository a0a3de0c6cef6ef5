//! Waits for the next work of each part of a run; for ever, if the run has no such part.
//!
//! Part of the session. Must not know what the work is.

use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;
use tokio::signal::unix::Signal;
use tokio::time::Interval;

use super::duty_cycle::DutyCycles;
use super::fast_path::{Due, FastPath};
use super::reaching::Reaching;
use super::sampling_rates::SamplingRates;

/// Waits until an update is due, or requested by SIGUSR1.
pub(super) async fn update_due(updates: &mut Interval, requests: &mut Signal) {
    tokio::select! {
        _ = updates.tick() => {}
        _ = requests.recv() => {}
    }
}

/// Waits until there is input for the observer; for ever if it has none.
pub(super) async fn has_input(input: &Option<AsyncFd<OwnedFd>>) {
    match input {
        // A valid descriptor gives no error, and ticks would replace this.
        Some(input) => {
            if let Ok(mut guard) = input.readable().await {
                guard.clear_ready();
            }
        }
        None => std::future::pending().await,
    }
}

/// Waits until processes are looked for; for ever if none are reached during the run.
pub(super) async fn reaching_due(reaching: &mut Option<Reaching>) {
    match reaching {
        Some(reaching) => reaching.due().await,
        None => std::future::pending().await,
    }
}

/// Waits for the next tick of the sampling rates; for ever if the run has no rate control.
pub(super) async fn rates_due(rates: &mut Option<SamplingRates>) {
    match rates {
        Some(rates) => rates.due().await,
        None => std::future::pending().await,
    }
}

/// Waits for the next tick of the duty cycles; for ever if the run has no overhead limit.
pub(super) async fn duty_cycles_due(duty_cycles: &mut Option<DutyCycles>) {
    match duty_cycles {
        Some(duty_cycles) => duty_cycles.due().await,
        None => std::future::pending().await,
    }
}

/// Waits for what the fast path has to do next; for ever if the run has none.
pub(super) async fn fast_path_due(fast_path: &mut Option<FastPath>) -> Due {
    match fast_path {
        Some(fast_path) => fast_path.due().await,
        None => std::future::pending().await,
    }
}
