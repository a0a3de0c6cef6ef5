//! What follows from the configuration of a run when it begins.
//!
//! Part of the session. Must not know how a run goes on.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

use super::targets;
use crate::config::RunConfig;
use crate::join::{EndedLimits, Joiner};
use crate::profile::{Mode, RunInfo, SizeRange};

/// The join of a run.
pub(super) fn new_joiner(config: &RunConfig) -> Joiner {
    let mut joiner = Joiner::new(
        targets::follow(config),
        EndedLimits::within(config.max_memory),
    );
    if config.threads {
        joiner.separate_threads();
    }
    if config.histogram {
        joiner.record_usage();
    }
    if !config.sampling.is_partial() {
        joiner.follow_calls();
    }
    if config.mappings {
        joiner.record_mappings();
    }
    if let Some(limit) = &config.live_limit {
        joiner.limit_live(limit.clone());
    }
    joiner
}

/// What is known of a run when it begins.
pub(super) fn run_info(config: &RunConfig) -> Result<RunInfo> {
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .context("can't read /proc/sys/kernel/osrelease")?;
    Ok(RunInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: match config.sampling.mean {
            1 => Mode::Exact,
            mean_bytes => Mode::Sampled { mean_bytes },
        },
        sizes: SizeRange {
            min: config.sampling.min_size,
            max: config.sampling.max_size,
        },
        started_unix_ns: started,
        target: config.describe_target(),
        kernel: kernel.trim().to_owned(),
    })
}
