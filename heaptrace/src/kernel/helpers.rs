//! The processes that help the agent.
//!
//! Part of `kernel`. Must not know what they do.

/// Processes of a run beside the agent and its children. They are never traced.
#[derive(Clone, Copy, Debug)]
pub struct Helpers {
    /// The process id of the guardian.
    pub guardian: u32,
    /// The process id of the installer, if the run has one.
    pub installer: Option<u32>,
}

impl Helpers {
    /// Whether a process is one of them.
    pub fn contains(self, pid: u32) -> bool {
        pid == self.guardian || Some(pid) == self.installer
    }
}
