//! Code without a file, which a runtime has generated, and the files that may have names for it.
//!
//! Stage: join.

use std::fs::File;
use std::sync::Arc;

use heaptrace_common::trampoline::is_trampoline;

use super::Addresses;
use crate::jit;
use crate::join::update::{LocationId, ModuleId};

/// Most jitdump files of a process that wait to be read.
const MAX_JITDUMPS: usize = 4;

/// The library of Java's virtual machine.
const JAVA_LIBRARY: &str = "/libjvm.so";

/// The lowest address that a process can map, by the kernel's default.
const LEAST_ADDRESS: u64 = 0x1_0000;

impl Addresses {
    /// Whether return addresses in a process are in code without a file.
    pub(in crate::join) fn has_code_without_file(
        &mut self,
        pid: u32,
        time: u64,
        frames: &[u64],
    ) -> bool {
        let mut locations = std::mem::take(&mut self.looked_at);
        locations.clear();
        self.locate(pid, time, frames, &mut locations);
        let has = locations.iter().any(|it| self.is_without_file(*it));
        self.looked_at = locations;
        has
    }

    /// Whether an address of a process is in code without a file, of which it is not known that it lacks frame pointers: Java's virtual
    /// machine compiles methods without them.
    pub(in crate::join) fn is_generated(&self, pid: u32, time: u64, address: u64) -> bool {
        let is_of_java = |module| self.modules.path(module).ends_with(JAVA_LIBRARY);
        self.spaces.has_generated(pid, time, address)
            && !self.spaces.modules(pid, time).any(is_of_java)
    }

    /// Whether a location is an address in code that has no file.
    pub(in crate::join) fn is_without_file(&self, id: LocationId) -> bool {
        let location = self.locations.get(id.0);
        location.is_some_and(|it| {
            let is_code = it.address >= LEAST_ADDRESS && !is_trampoline(it.address + 1);
            it.module.is_none() && it.function.is_none() && is_code
        })
    }

    /// The jitdump files that a process has announced since the last call.
    pub(in crate::join) fn take_jitdumps(&mut self, pid: u32) -> Vec<Arc<File>> {
        self.jitdumps.remove(&pid).unwrap_or_default()
    }

    /// Remembers a file that a process has mapped, if it is a jitdump file.
    pub(super) fn note_jitdump(&mut self, pid: u32, path: &str, module: ModuleId) {
        if jit::is_jitdump(path)
            && let Some(file) = self.modules.files().file(module)
        {
            let dumps = self.jitdumps.entry(pid).or_default();
            if dumps.len() < MAX_JITDUMPS {
                dumps.push(file);
            }
        }
    }
}
