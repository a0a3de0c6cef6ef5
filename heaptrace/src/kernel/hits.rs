//! What the kernel program tells of what it costs, and how it forgets calls that nobody will see to their end.
//!
//! Stage: probes.

use std::collections::HashMap as Map;

use anyhow::Result;
use aya::maps::HashMap;
use aya::programs::UProbe;
use heaptrace_common::limits::HITS_PER_NOTE;
use heaptrace_common::wire::ThreadState;

use super::program::Program;

/// A thread's state, as far as maps are concerned.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodThreadState(ThreadState);
// SAFETY: integers only, without padding bytes (asserted where the struct is defined).
unsafe impl aya::Pod for PodThreadState {}

impl Program {
    /// About how many hits of probes there were since the last call, per process id.
    pub fn take_hits(&self) -> Result<Map<u32, u64>> {
        let map = HashMap::<_, u32, u64>::try_from(self.map("HITS")?)?;
        // What a process is noted for while this goes on may come twice in the list: the second time there
        // is nothing left, or what is new.
        let pids: Vec<u32> = map.keys().filter_map(Result::ok).collect();
        let mut hits = Map::new();
        for pid in pids {
            // The agent's own are counted with the others, and concern nobody.
            if pid == std::process::id() {
                continue;
            }
            let notes: u64 = self.take("HITS", &pid)?.unwrap_or(0);
            *hits.entry(pid).or_default() += notes * u64::from(HITS_PER_NOTE);
        }
        Ok(hits)
    }

    /// How often programs of probes have run, and how long, where the kernel counts that.
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

    /// Forgets the pending calls of processes that are not probed any more: they return unseen.
    pub fn forget_calls(&mut self, is_meant: impl Fn(u32) -> bool) -> Result<()> {
        let mut map = HashMap::<_, u64, PodThreadState>::try_from(self.map_mut("THREADS")?)?;
        let meant = |key: &u64| is_meant((key >> 32) as u32);
        let keys: Vec<u64> = map.keys().filter_map(Result::ok).filter(meant).collect();
        for key in keys {
            // A thread may have ended.
            let _ = map.remove(&key);
        }
        Ok(())
    }
}
