//! Which processes were reached, and which ended before that, in a run that reaches processes one by one.
//!
//! Part of `kernel`. Must not know how a process is reached.

use anyhow::Result;
use aya::maps::HashMap;
use heaptrace_common::wire::{ShortLived, ShortLivedKey};

use super::pod::Wire;
use super::program::Program;

impl Program {
    /// Records that a process is reached, or has nothing to probe. The kernel program forgets it when it ends.
    pub fn set_reached(&mut self, pid: u32) -> Result<()> {
        let mut map = HashMap::<_, u32, u8>::try_from(self.map_mut("REACHED")?)?;
        Ok(map.insert(pid, 1, 0)?)
    }

    /// The processes that ended before they were reached, by name and control group.
    pub fn short_lived(&self) -> Result<Vec<(ShortLivedKey, ShortLived)>> {
        let map = self.map("SHORT_LIVED")?;
        let map = HashMap::<_, Wire<ShortLivedKey>, Wire<ShortLived>>::try_from(map)?;
        let entries = map.iter().filter_map(Result::ok);
        Ok(entries.map(|(key, count)| (key.0, count.0)).collect())
    }
}
