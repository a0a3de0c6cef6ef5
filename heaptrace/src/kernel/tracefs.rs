//! Definitions of uprobe events, in a private mount of tracefs.
//!
//! Part of `kernel`. A probe is opened as a perf event of a *defined* uprobe, not of perf's own uprobe
//! device: children can inherit only such events (perf's own would make the target's `fork` fail). The
//! definitions outlive the process that defined them. A guardian process removes them after the run, also if the agent
//! is killed; without it, [`Definitions`] removes them when it is dropped.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags, openat};

use crate::sys;

const GROUP: &str = "heaptrace_";

/// Where tracefs is usually mounted, for a user that may not mount it.
const MOUNTED: [&CStr; 2] = [c"/sys/kernel/tracing", c"/sys/kernel/debug/tracing"];

/// The kernel's tracing file system, mounted so that no other process sees it.
pub struct Tracefs {
    root: OwnedFd,
    /// Open for the whole run: opening it needs rights that the rest of a run does not need.
    events: File,
}

impl Tracefs {
    /// Mounts tracefs, or else opens a mounted one.
    pub fn open() -> io::Result<Self> {
        let root = match sys::mount_detached(c"tracefs") {
            Ok(root) => root,
            Err(error) => MOUNTED
                .iter()
                .find_map(|path| open_mounted(path))
                .ok_or(error)?,
        };
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let events = openat(&root, c"uprobe_events", flags, Mode::empty())?.into();
        Ok(Self { root, events })
    }

    fn define(&self, text: &str) -> io::Result<()> {
        // The kernel parses each write as whole lines.
        (&self.events).write_all(text.as_bytes())
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut text = String::new();
        File::from(openat(&self.root, path, flags, Mode::empty())?).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Removes the definitions of groups that `is_stale` selects by the process id in their name. Definitions
    /// that are still in use stay, and make this an error.
    pub fn remove_groups(&self, is_stale: impl Fn(u32) -> bool) -> io::Result<()> {
        let mut result = Ok(());
        for event in events_of_groups(&self.read("uprobe_events")?, is_stale) {
            match self.define(&format!("-:{event}\n")) {
                Err(error) if error.raw_os_error() != Some(libc::ENOENT) => result = Err(error),
                _ => {}
            }
        }
        result
    }
}

impl Tracefs {
    /// The descriptors of the mount and of its list of events.
    pub(crate) fn descriptors(&self) -> [RawFd; 2] {
        [self.root.as_raw_fd(), self.events.as_raw_fd()]
    }
}

/// Whether tracefs is mounted at one of its usual mount points.
pub fn is_mounted() -> bool {
    MOUNTED.iter().any(|path| open_mounted(path).is_some())
}

/// A mounted tracefs; `None` if another file system, or none, is mounted there.
fn open_mounted(path: &CStr) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty());
    root.ok().filter(|root| {
        let kind = rustix::fs::fstatfs(root).map(|it| it.f_type);
        kind.is_ok_and(|kind| kind == libc::TRACEFS_MAGIC)
    })
}

/// `GROUP/EVENT` of each line of `uprobe_events` whose group is heaptrace's and is selected.
fn events_of_groups(list: &str, pick: impl Fn(u32) -> bool) -> Vec<&str> {
    list.lines()
        .filter_map(|line| line.split_whitespace().next()?.split_once(':'))
        .map(|(_, event)| event)
        .filter(|event| {
            event
                .strip_prefix(GROUP)
                .and_then(|rest| rest.split_once('/')?.0.parse().ok())
                .is_some_and(&pick)
        })
        .collect()
}

/// Uprobe events that this process has defined; removed when this is dropped.
pub struct Definitions {
    tracefs: Tracefs,
    group: String,
    count: usize,
    is_left: bool,
}

impl Definitions {
    /// No definitions yet. Removes the definitions that ended processes left.
    pub fn new(tracefs: Tracefs) -> Self {
        let is_gone = |pid: u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        // A definition that can't be removed is still in use; this run does not depend on it.
        if let Err(error) = tracefs.remove_groups(is_gone) {
            tracing::debug!("stale probe definitions were not removed: {error}");
        }
        Self {
            tracefs,
            group: format!("{GROUP}{}", std::process::id()),
            count: 0,
            is_left: false,
        }
    }

    /// Defines a probe at an offset of an open file, and returns the id of its event.
    ///
    /// The file is named by its descriptor: a path may contain blanks, name another file by now, or be in
    /// another root.
    pub fn define(&mut self, file: &File, offset: u64, is_return: bool) -> io::Result<u64> {
        let kind = if is_return { 'r' } else { 'p' };
        let name = format!("{}/probe{}", self.group, self.count);
        let fd = file.as_raw_fd();
        self.tracefs
            .define(&format!("{kind}:{name} /proc/self/fd/{fd}:{offset:#x}\n"))?;
        self.count += 1;
        let id = self.tracefs.read(&format!("events/{name}/id"))?;
        id.trim().parse().map_err(io::Error::other)
    }
}

impl Definitions {
    /// The number of definitions, which is the number of the next one.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Leaves the definitions to the process that holds the probes.
    pub(crate) fn leave(&mut self) {
        self.is_left = true;
    }

    /// Removes the definitions from a number on, which are no longer in use.
    pub(crate) fn remove_from(&mut self, first: usize) {
        for number in first..self.count {
            let name = format!("{}/probe{number}", self.group);
            // It may not have been defined.
            if let Err(error) = self.tracefs.define(&format!("-:{name}\n")) {
                tracing::debug!("{name} was not removed: {error}");
            }
        }
    }
}

impl Drop for Definitions {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let own = std::process::id();
        if let Err(error) = self.tracefs.remove_groups(|pid| pid == own) {
            tracing::warn!(
                "probe definitions were not removed: {error}; the next run removes them"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only events of heaptrace's own groups are named, whatever other events are defined.
    #[test]
    fn only_own_groups_are_named() {
        let list = "p:heaptrace_12/probe0 /proc/self/fd/9:0x10\n\
                    r:heaptrace_13/probe1 /lib/x:0x20\n\
                    p:mine/heaptrace_12 /a:0x1\n\
                    garbage\n";
        assert_eq!(
            events_of_groups(list, |pid| pid == 12),
            ["heaptrace_12/probe0"]
        );
        assert_eq!(events_of_groups(list, |_| true).len(), 2);
    }
}
