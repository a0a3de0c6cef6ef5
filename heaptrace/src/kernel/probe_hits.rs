//! Probe hits per process, the run time of the kernel programs, and dropping pending calls whose return will
//! not be seen.
//!
//! Part of `kernel`. It must not know what the numbers are used for.

use std::collections::HashMap as Map;

use anyhow::Result;
use aya::maps::HashMap;
use aya::programs::UProbe;
use heaptrace_common::limits::HITS_PER_COUNT;
use heaptrace_common::wire::ThreadState;

use super::pod::Wire;
use super::program::Program;

impl Program {
    /// The estimated number of probe hits since the last call of this function, by process id.
    pub fn take_hits(&self) -> Result<Map<u32, u64>> {
        let map = HashMap::<_, u32, u64>::try_from(self.map("PROBE_HITS")?)?;
        // A process that is counted meanwhile may be in the list twice. The second time its entry is gone, or
        // holds new hits.
        let pids: Vec<u32> = map.keys().filter_map(Result::ok).collect();
        let mut hits = Map::new();
        for pid in pids {
            // The kernel program counts the agent's own hits, too; they don't matter.
            if pid == std::process::id() {
                continue;
            }
            let count: u64 = self.take("PROBE_HITS", &pid)?.unwrap_or(0);
            *hits.entry(pid).or_default() += count * u64::from(HITS_PER_COUNT);
        }
        Ok(hits)
    }

    /// How often the probe programs have run, and for how many nanoseconds, if the kernel counts that.
    pub fn runs(&self) -> (u64, u64) {
        let mut sum = (0, 0);
        for (_, program) in self.programs() {
            let info = <&UProbe>::try_from(program)
                .ok()
                .and_then(|it| it.info().ok());
            if let Some(info) = info {
                sum.0 += info.run_count();
                sum.1 += info.run_time().as_nanos() as u64;
            }
        }
        sum
    }

    /// Drops the pending calls of processes that are no longer probed: their returns will not be seen.
    pub fn forget_calls(&mut self, is_unprobed: impl Fn(u32) -> bool) -> Result<()> {
        let mut map = HashMap::<_, u64, Wire<ThreadState>>::try_from(self.map_mut("THREADS")?)?;
        let unprobed = |key: &u64| is_unprobed((key >> 32) as u32);
        let keys = map.keys().filter_map(Result::ok).filter(unprobed);
        let keys: Vec<u64> = keys.collect();
        for key in keys {
            // A thread may have ended.
            let _ = map.remove(&key);
        }
        Ok(())
    }
}
