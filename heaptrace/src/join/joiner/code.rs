//! Which process has a number, and which file is mapped at an address of it.
//!
//! Stage: join.

use std::fs::File;
use std::sync::Arc;

use super::Joiner;
use crate::join::addresses::CodeInFile;
use crate::join::update::ModuleId;

impl Joiner {
    /// The id of a process by its serial number.
    pub fn pid(&self, process: u64) -> Option<u32> {
        let processes = self.ledger.processes();
        let entry = processes.get(processes.id(process)?)?;
        Some(entry.record().pid)
    }

    /// The code at an address of a process at a time; `None` if nothing is known to be mapped there.
    pub fn code_at(&self, process: u64, time: u64, address: u64) -> Option<CodeInFile> {
        self.addresses.code_at(self.pid(process)?, time, address)
    }

    /// Whether the code at an address was generated, and can keep frame pointers.
    pub fn is_generated(&self, process: u64, time: u64, address: u64) -> bool {
        let pid = self.pid(process);
        pid.is_some_and(|pid| self.addresses.is_generated(pid, time, address))
    }

    /// The file of a module, and its path.
    pub fn module_file(&self, module: ModuleId) -> Option<(Arc<File>, &str)> {
        let file = self.addresses.files().file(module)?;
        Some((file, self.addresses.path(module)))
    }
}
