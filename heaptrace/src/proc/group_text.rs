//! The control groups of a process, as `/proc/PID/cgroup` has them.
//!
//! Part of `proc`. Read once, when it is first needed. Must not know what is looked for in it.

/// The text of a process.
#[derive(Debug)]
pub struct GroupText {
    pid: u32,
    text: Option<String>,
}

impl GroupText {
    /// That of a process; nothing is read yet.
    pub fn of(pid: u32) -> Self {
        Self { pid, text: None }
    }

    /// Whether it was read.
    #[cfg(test)]
    pub(crate) fn is_read(&self) -> bool {
        self.text.is_some()
    }

    /// The text; empty if the process is gone.
    pub fn get(&mut self) -> &str {
        let path = || format!("/proc/{}/cgroup", self.pid);
        self.text
            .get_or_insert_with(|| std::fs::read_to_string(path()).unwrap_or_default())
    }
}
