//! The kernel program's map of Java virtual machines.
//!
//! Part of `kernel`. Must not know what a virtual machine's description is made of.

use anyhow::Result;
use aya::maps::{HashMap, MapData};
use heaptrace_common::wire::Jvm;

use super::pod::Wire;
use super::program::Program;

/// The map.
pub struct Jvms {
    map: HashMap<MapData, u32, Wire<Jvm>>,
}

impl Jvms {
    /// Sets the entry of a process, if the kernel program has asked for it. The process may have ended since.
    pub fn answer(&mut self, pid: u32, jvm: Jvm) {
        const ONLY_EXISTING: u64 = 2;
        let _ = self.map.insert(pid, Wire(jvm), ONLY_EXISTING);
    }

    /// Sets the entry of a process, whether the kernel program has asked for it or not.
    pub fn set(&mut self, pid: u32, jvm: Jvm) {
        // Without room, the kernel program asks when it meets generated code.
        let _ = self.map.insert(pid, Wire(jvm), 0);
    }

    /// Removes the entry of a process. The kernel program asks again.
    pub fn remove(&mut self, pid: u32) {
        // The process may have none.
        let _ = self.map.remove(&pid);
    }
}

impl Program {
    /// The map of Java virtual machines, once.
    pub fn take_jvms(&mut self) -> Result<Jvms> {
        let map = self.take_map("JVMS")?;
        Ok(Jvms {
            map: HashMap::try_from(map)?,
        })
    }
}
