//! Control groups: from the id in an event, or from `/proc`, to a path.
//!
//! Stage: join. The id is what the kernel itself says of a process at its first allocation, and is
//! enough where the process is gone again before anybody could ask for it. Knows nothing of
//! containers and units: what a path tells is for the outputs to read.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;

use crate::sys;

/// Where the unified hierarchy is mounted: alone, or beside those of version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Most paths that are kept. A machine with more groups asks the kernel again.
const MAX_KNOWN: usize = 8192;

/// Longest path that is kept; the kernel allows longer ones than anybody means.
const MAX_PATH: usize = 1024;

/// Paths of control groups, by the ids that the kernel gives them.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// The mount, once it was looked for.
    hierarchy: Option<Option<Hierarchy>>,
    known: HashMap<u64, String>,
}

/// The unified hierarchy.
#[derive(Debug)]
struct Hierarchy {
    root: File,
    path: &'static str,
}

impl Cgroups {
    /// Path of the control group of a process that has just begun; empty if it can't be known.
    pub(super) fn of(&mut self, pid: u32, id: u64) -> String {
        let path = self.path(id);
        // The root says nothing where a hierarchy of version 1 has the groups.
        if path.is_empty() || path == "/" {
            let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            let told = cut(choose(&text));
            if !told.is_empty() {
                return told;
            }
        }
        path
    }

    /// Path of the group with an id; empty where there is none, or none any more.
    fn path(&mut self, id: u64) -> String {
        if id == 0 {
            return String::new();
        }
        if let Some(path) = self.known.get(&id) {
            return path.clone();
        }
        let hierarchy = self.hierarchy.get_or_insert_with(Hierarchy::find);
        let path = hierarchy
            .as_ref()
            .and_then(|hierarchy| hierarchy.path(id))
            .unwrap_or_default();
        // Its path will not change; that it has none now may only mean that it was removed.
        if !path.is_empty() {
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
            }
            self.known.insert(id, path.clone());
        }
        path
    }
}

impl Hierarchy {
    fn find() -> Option<Self> {
        MOUNTS.into_iter().find_map(|path| {
            let root = File::open(path).ok()?;
            sys::is_unified_cgroup(root.as_fd()).then_some(Self { root, path })
        })
    }

    fn path(&self, id: u64) -> Option<String> {
        let group = sys::open_cgroup(self.root.as_fd(), id).ok()?;
        let link = std::fs::read_link(format!("/proc/self/fd/{}", group.as_raw_fd())).ok()?;
        below(&link, self.path)
    }
}

/// A path below a mount, as a path of its own.
fn below(path: &Path, mount: &str) -> Option<String> {
    let rest = path.strip_prefix(mount).ok()?;
    Some(cut(&format!("/{}", rest.to_string_lossy())))
}

/// Of the lines of `/proc/PID/cgroup` the path that says most: that of the unified hierarchy, unless
/// it is the root there, as everything is where the groups are those of version 1.
fn choose(text: &str) -> &str {
    /// Hierarchies of version 1 that are mostly divided, the most telling first.
    const TELLING: [&str; 4] = ["name=systemd", "memory", "pids", "cpu"];
    let lines = || {
        text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        })
    };
    let unified = lines().find(|(controllers, _)| controllers.is_empty());
    let rank = |controllers: &str| {
        let named = |name: &&str| controllers.split(',').any(|it| it == *name);
        TELLING.iter().position(named).unwrap_or(TELLING.len())
    };
    let divided = lines()
        .filter(|(controllers, path)| !controllers.is_empty() && *path != "/")
        .min_by_key(|(controllers, _)| rank(controllers));
    let other = || divided.or_else(|| lines().next());
    unified
        .filter(|(_, path)| *path != "/")
        .or_else(other)
        .map_or("", |(_, path)| path)
}

fn cut(path: &str) -> String {
    path.chars().take(MAX_PATH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the unified hierarchy comes first, and that paths may hold colons.
    #[test]
    fn unified_first() {
        assert_eq!(choose("4:cpu:/a\n0::/b:c\n"), "/b:c");
        assert_eq!(choose("0::/\n"), "/");
        assert_eq!(choose("x\n::\n"), "");
        assert_eq!(choose(""), "");
    }

    /// Check that version 1 has its say where the unified hierarchy is one single group, and there
    /// systemd's own hierarchy before those of controllers.
    #[test]
    fn version_1() {
        let docker = "12:pids:/docker/ab\n4:memory:/docker/ab\n2:cpu,cpuacct:/\n0::/\n";
        assert_eq!(choose(docker), "/docker/ab");
        let hybrid =
            "5:cpu,cpuacct:/c\n4:memory:/m\n1:name=systemd:/system.slice/a.service\n0::/\n";
        assert_eq!(choose(hybrid), "/system.slice/a.service");
        assert_eq!(choose("2:net_cls:/n\n5:cpu,cpuacct:/c\n0::/\n"), "/c");
        assert_eq!(choose("4:cpu:/\n0::/\n"), "/");
    }

    /// Check that a path is taken from below its mount, and bounded.
    #[test]
    fn paths_below_mounts() {
        let path = |path: &str| below(Path::new(path), "/sys/fs/cgroup");
        assert_eq!(path("/sys/fs/cgroup"), Some("/".to_owned()));
        assert_eq!(path("/sys/fs/cgroup/a/b"), Some("/a/b".to_owned()));
        assert_eq!(path("/elsewhere/a"), None);
        let long = path(&format!("/sys/fs/cgroup/{}", "x".repeat(1 << 16)));
        assert_eq!(long.unwrap().len(), MAX_PATH);
    }

    /// Check that a process that is there has the group that the system gives it, and that one which
    /// never was has none.
    #[test]
    fn of_processes() {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let mut cgroups = Cgroups::default();
        assert_eq!(cgroups.of(std::process::id(), 0), choose(&own));
        assert_eq!(cgroups.of(u32::MAX, 0), "");
        assert_eq!(cgroups.of(u32::MAX, u64::MAX), "");
    }
}
