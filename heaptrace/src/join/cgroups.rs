//! The path of a process's control group, by the id in an event or from `/proc`.
//!
//! Stage: join. The kernel program sends the id at the first allocation of a process, so the path is found
//! even if the process is gone by then. Knows nothing of containers and units: the outputs read them out of
//! the path.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;

use crate::proc::group_text::GroupText;
use crate::sys;

/// Where the unified hierarchy is mounted: alone, or beside the hierarchies of version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Most paths in the cache. On a machine with more groups, the kernel is asked again.
const MAX_CACHED: usize = 8192;

/// Most characters of a path. The kernel allows more, but no real path needs them.
const MAX_PATH: usize = 1024;

/// Paths of control groups, by the ids that the kernel gives them.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// The mount; the inner `None` if there is none, the outer one before the first search.
    hierarchy: Option<Option<Hierarchy>>,
    cache: HashMap<u64, String>,
}

/// The unified hierarchy.
#[derive(Debug)]
struct Hierarchy {
    root: File,
    path: &'static str,
}

impl Cgroups {
    /// The path of the control group of a process that has just begun; empty if it can't be found out.
    pub(super) fn of(&mut self, groups: &mut GroupText, id: u64) -> String {
        let path = self.path(id);
        // If a hierarchy of version 1 has the groups, every process is in the root of the unified one.
        if path.is_empty() || path == "/" {
            let path = cut(most_specific(groups.get()));
            if !path.is_empty() {
                return path;
            }
        }
        path
    }

    /// The path of the group with an id; empty if there is none, or none any more.
    pub(super) fn path(&mut self, id: u64) -> String {
        if id == 0 {
            return String::new();
        }
        if let Some(path) = self.cache.get(&id) {
            return path.clone();
        }
        let hierarchy = self.hierarchy.get_or_insert_with(Hierarchy::find);
        let path = hierarchy
            .as_ref()
            .and_then(|hierarchy| hierarchy.path(id))
            .unwrap_or_default();
        // A path never changes. A group without a path may have been removed, so that is not cached.
        if !path.is_empty() {
            if self.cache.len() >= MAX_CACHED {
                self.cache.clear();
            }
            self.cache.insert(id, path.clone());
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

/// The part of a path below a mount, as an absolute path.
fn below(path: &Path, mount: &str) -> Option<String> {
    let rest = path.strip_prefix(mount).ok()?;
    Some(cut(&format!("/{}", rest.to_string_lossy())))
}

/// The most specific path in `/proc/PID/cgroup`: the one of the unified hierarchy, unless that is the root.
/// Where the groups are those of version 1, every process is in that root.
fn most_specific(text: &str) -> &str {
    /// Hierarchies of version 1 that usually have groups, the most useful one first.
    const PREFERRED: [&str; 4] = ["name=systemd", "memory", "pids", "cpu"];
    let lines = || {
        text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        })
    };
    let unified = lines().find(|(controllers, _)| controllers.is_empty());
    let rank = |controllers: &str| {
        let named = |name: &&str| controllers.split(',').any(|it| it == *name);
        PREFERRED.iter().position(named).unwrap_or(PREFERRED.len())
    };
    let version_1 = lines()
        .filter(|(controllers, path)| !controllers.is_empty() && *path != "/")
        .min_by_key(|(controllers, _)| rank(controllers));
    let other = || version_1.or_else(|| lines().next());
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

    /// Check that the unified hierarchy comes first, and that paths may have colons.
    #[test]
    fn the_unified_hierarchy_comes_first() {
        assert_eq!(most_specific("4:cpu:/a\n0::/b:c\n"), "/b:c");
        assert_eq!(most_specific("0::/\n"), "/");
        assert_eq!(most_specific("x\n::\n"), "");
        assert_eq!(most_specific(""), "");
    }

    /// Check that version 1 counts if the unified hierarchy is a single group, and that systemd's own
    /// hierarchy comes before those of controllers.
    #[test]
    fn version_1_counts_under_a_single_unified_group() {
        let docker = "12:pids:/docker/ab\n4:memory:/docker/ab\n2:cpu,cpuacct:/\n0::/\n";
        assert_eq!(most_specific(docker), "/docker/ab");
        let hybrid =
            "5:cpu,cpuacct:/c\n4:memory:/m\n1:name=systemd:/system.slice/a.service\n0::/\n";
        assert_eq!(most_specific(hybrid), "/system.slice/a.service");
        assert_eq!(
            most_specific("2:net_cls:/n\n5:cpu,cpuacct:/c\n0::/\n"),
            "/c"
        );
        assert_eq!(most_specific("4:cpu:/\n0::/\n"), "/");
    }

    /// Check that a path begins below its mount, and is cut to a length.
    #[test]
    fn paths_begin_below_mounts() {
        let path = |path: &str| below(Path::new(path), "/sys/fs/cgroup");
        assert_eq!(path("/sys/fs/cgroup"), Some("/".to_owned()));
        assert_eq!(path("/sys/fs/cgroup/a/b"), Some("/a/b".to_owned()));
        assert_eq!(path("/elsewhere/a"), None);
        let long = path(&format!("/sys/fs/cgroup/{}", "x".repeat(1 << 16)));
        assert_eq!(long.unwrap().len(), MAX_PATH);
    }

    /// Check that a running process has the group that the system gives it, and that an unknown one has none.
    #[test]
    fn running_processes_have_groups() {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let mut cgroups = Cgroups::default();
        let mut of = |pid, id| cgroups.of(&mut GroupText::of(pid), id);
        assert_eq!(of(std::process::id(), 0), most_specific(&own));
        assert_eq!(of(u32::MAX, 0), "");
        assert_eq!(of(u32::MAX, u64::MAX), "");
    }
}
