//! The rate at which the kernel program samples: its first value, and its changes.
//!
//! Part of `kernel`. It must not know why the rate changes.

use anyhow::{Context as _, Result, anyhow};
use aya::maps::{Array, HashMap, PerCpuArray, PerCpuValues};
use heaptrace_common::sampling;
use heaptrace_common::wire::{Countdown, setting};

use super::pod::Wire;
use super::program::Program;
use crate::sys;

impl Program {
    /// Starts the first countdown of each CPU.
    pub(crate) fn start_sampling(&mut self, mean: u64) -> Result<()> {
        self.set(setting::MEAN, mean)?;
        let cpus = aya::util::nr_cpus().map_err(|(path, error)| anyhow!(error).context(path))?;
        let countdowns = (0..cpus)
            .map(|_| {
                let left = sampling::gap(mean, sys::random().context("getrandom")?);
                Ok(Wire(Countdown {
                    left,
                    mean,
                    has_pending: 0,
                }))
            })
            .collect::<Result<Vec<_>>>()?;
        let map = self.map_mut("COUNTDOWN")?;
        let mut map = PerCpuArray::<_, Wire<Countdown>>::try_from(map)?;
        Ok(map.set(0, PerCpuValues::try_from(countdowns)?, 0)?)
    }

    /// Multiplies the mean between samples by a power of two, for processes without a shift of their own.
    pub fn set_shift(&mut self, shift: u32) -> Result<()> {
        self.set(setting::SHIFT, shift.into())
    }

    /// Multiplies the mean for one process; `None` treats it like all other processes again.
    pub fn set_shift_of(&mut self, pid: u32, shift: Option<u32>) -> Result<()> {
        let map = self.map_mut("SHIFTS")?;
        let mut map = HashMap::<_, u32, u32>::try_from(map)?;
        match shift {
            Some(shift) => map.insert(pid, shift, 0)?,
            // The process may have no entry.
            None => drop(map.remove(&pid)),
        }
        Ok(())
    }

    fn set(&mut self, setting: u32, value: u64) -> Result<()> {
        let map = self.map_mut("SETTINGS")?;
        Ok(Array::<_, u64>::try_from(map)?.set(setting, value, 0)?)
    }
}
