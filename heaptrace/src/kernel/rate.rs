//! The rate at which the kernel program samples, as it begins and as it is changed.
//!
//! Part of `kernel`. It must not know why the rate is changed.

use anyhow::{Context as _, Result, anyhow};
use aya::maps::{Array, HashMap, PerCpuArray, PerCpuValues};
use heaptrace_common::sampling;
use heaptrace_common::wire::{Countdown, setting};

use super::program::Program;
use crate::sys;

/// A countdown, as far as maps are concerned.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodCountdown(Countdown);
// SAFETY: integers only, without padding bytes (asserted where the struct is defined).
unsafe impl aya::Pod for PodCountdown {}

impl Program {
    /// Begins the first countdown of each CPU.
    pub(crate) fn begin_sampling(&mut self, mean: u64) -> Result<()> {
        self.set(setting::MEAN, mean)?;
        let cpus = aya::util::nr_cpus().map_err(|(path, error)| anyhow!(error).context(path))?;
        let countdowns = (0..cpus)
            .map(|_| {
                let left = sampling::gap(mean, sys::random().context("getrandom")?);
                Ok(PodCountdown(Countdown { left, mean }))
            })
            .collect::<Result<Vec<_>>>()?;
        let map = self.map_mut("COUNTDOWN")?;
        let mut map = PerCpuArray::<_, PodCountdown>::try_from(map)?;
        Ok(map.set(0, PerCpuValues::try_from(countdowns)?, 0)?)
    }

    /// Makes the mean between samples larger by a power of two, for processes without one of their own.
    pub fn set_shift(&mut self, shift: u32) -> Result<()> {
        self.set(setting::SHIFT, shift.into())
    }

    /// Makes it larger for one process, or for that one as for all others.
    pub fn set_shift_of(&mut self, pid: u32, shift: Option<u32>) -> Result<()> {
        let map = self.map_mut("SHIFTS")?;
        let mut map = HashMap::<_, u32, u32>::try_from(map)?;
        match shift {
            Some(shift) => map.insert(pid, shift, 0)?,
            // One that has none is as it should be.
            None => drop(map.remove(&pid)),
        }
        Ok(())
    }

    fn set(&mut self, setting: u32, value: u64) -> Result<()> {
        let map = self.map_mut("SETTINGS")?;
        Ok(Array::<_, u64>::try_from(map)?.set(setting, value, 0)?)
    }
}
