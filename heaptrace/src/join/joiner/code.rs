//! Which file is mapped at an address of a process.
//!
//! Stage: join.

use std::fs::File;
use std::sync::Arc;

use super::Joiner;
use crate::join::addresses::CodeInFile;
use crate::join::update::ModuleId;

impl Joiner {
    /// The code at an address of a process at a time; `None` if nothing is known to be mapped there.
    pub fn code_at(&self, process: u64, time: u64, address: u64) -> Option<CodeInFile> {
        let processes = self.ledger.processes();
        let entry = processes.get(processes.id(process)?)?;
        self.addresses.code_at(entry.record().pid, time, address)
    }

    /// Whether the code at an address was generated, and can keep frame pointers.
    pub fn is_generated(&self, process: u64, time: u64, address: u64) -> bool {
        let processes = self.ledger.processes();
        let entry = processes.id(process).and_then(|id| processes.get(id));
        entry.is_some_and(|it| self.addresses.is_generated(it.record().pid, time, address))
    }

    /// The file of a module, and its path.
    pub fn module_file(&self, module: ModuleId) -> Option<(Arc<File>, &str)> {
        let file = self.addresses.files().file(module)?;
        Some((file, self.addresses.path(module)))
    }
}
