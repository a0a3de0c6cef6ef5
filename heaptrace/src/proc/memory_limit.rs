//! The limit of memory of control groups, and how often the kernel refused memory or killed a process there.
//!
//! Part of `proc`. Knows both versions of the hierarchy. What is read is bounded, and a path that leaves the hierarchy is refused. Must
//! not know which processes are traced.

use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// Where a hierarchy that limits memory can be, and whether it is a unified one.
const MOUNTS: [(&str, bool); 3] = [
    ("/sys/fs/cgroup", true),
    ("/sys/fs/cgroup/memory", false),
    ("/sys/fs/cgroup/unified", true),
];

/// Most groups above a group that are looked at, and most bytes of a path and of a file.
const MAX_DEPTH: usize = 32;
const MAX_PATH: usize = 1024;
const MAX_FILE: u64 = 4096;

/// The kernel takes memory for a group in steps: it is full if so much is left.
const NEARLY: u64 = 256 << 10;

/// A limit of this size is none: version 1 has the largest number of pages.
const NO_LIMIT: u64 = 1 << 62;

/// The hierarchy of control groups that limits memory.
#[derive(Clone, Debug)]
pub struct MemoryHierarchy {
    root: PathBuf,
    is_unified: bool,
}

/// The memory of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupMemory {
    /// Its own limit.
    pub limit: Option<u64>,
    /// How often the kernel found no memory for it, because this limit was reached.
    pub refused: u64,
    /// Whether its memory was at its limit at any time. Only known in version 1, where some kernels don't count refusals.
    pub was_full: bool,
    /// How often the kernel killed a process for lack of memory in it; in version 2 also in groups below it.
    pub kills: u64,
}

impl MemoryHierarchy {
    /// The hierarchy of this machine; `None` if none is mounted at its usual place.
    pub fn find() -> Option<Self> {
        let hierarchies = MOUNTS.into_iter().map(|(root, is_unified)| Self {
            root: root.into(),
            is_unified,
        });
        hierarchies.into_iter().find(Self::has_memory)
    }

    /// Whether it is the unified one, of version 2.
    pub fn is_unified(&self) -> bool {
        self.is_unified
    }

    /// A unified hierarchy without groups.
    #[cfg(test)]
    pub(crate) fn unified_for_tests() -> Self {
        Self {
            root: "/nowhere".into(),
            is_unified: true,
        }
    }

    fn has_memory(&self) -> bool {
        match self.is_unified {
            true => {
                let controllers = self.text("/", "cgroup.controllers").unwrap_or_default();
                controllers.split_whitespace().any(|it| it == "memory")
            }
            false => self.root.join("memory.limit_in_bytes").exists(),
        }
    }

    /// The group of a process, by the content of `/proc/PID/cgroup`.
    pub fn group_in<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut lines = text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        });
        let is_it = |controllers: &str| match self.is_unified {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|it| it == "memory"),
        };
        let (_, path) = lines.find(|(controllers, _)| is_it(controllers))?;
        is_plain(path).then_some(path)
    }

    /// A group and those above it, the innermost first.
    pub fn levels(path: &str) -> impl Iterator<Item = &str> {
        let path = if is_plain(path) { path } else { "/" };
        let levels = Path::new(path).ancestors().take(MAX_DEPTH);
        levels.filter_map(Path::to_str)
    }

    /// The memory of a group; `None` if it is gone.
    pub fn read(&self, group: &str) -> Option<GroupMemory> {
        if !is_plain(group) {
            return None;
        }
        let number = |file| self.text(group, file)?.trim().parse().ok();
        let count = |file, name| count(&self.text(group, file)?, name);
        if self.is_unified {
            // Before Linux 5.2, only the events of all groups below are known.
            let local = count("memory.events.local", "oom");
            let kills = count("memory.events", "oom_kill")?;
            return Some(GroupMemory {
                limit: number("memory.max"),
                refused: local.or_else(|| count("memory.events", "oom"))?,
                was_full: false,
                kills,
            });
        }
        let with_swap: Option<u64> = number("memory.memsw.failcnt");
        let limit: u64 = number("memory.limit_in_bytes")?;
        let most: u64 = number("memory.max_usage_in_bytes").unwrap_or(0);
        Some(GroupMemory {
            limit: Some(limit).filter(|limit| *limit < NO_LIMIT),
            refused: number("memory.failcnt")?.saturating_add(with_swap.unwrap_or(0)),
            was_full: most.saturating_add(NEARLY) >= limit,
            kills: count("memory.oom_control", "oom_kill").unwrap_or(0),
        })
    }

    fn text(&self, group: &str, file: &str) -> Option<String> {
        let path = self.root.join(group.trim_start_matches('/')).join(file);
        let mut text = String::new();
        let file = File::open(path).ok()?;
        file.take(MAX_FILE).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

/// Whether a path stays in its hierarchy. In a control group namespace, groups outside have paths with `..`.
fn is_plain(path: &str) -> bool {
    let mut components = Path::new(path).components();
    let is_usual = |it: Component<'_>| matches!(it, Component::RootDir | Component::Normal(_));
    path.starts_with('/') && path.len() <= MAX_PATH && components.all(is_usual)
}

/// The number behind a name at the beginning of a line.
fn count(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, number) = lines.find(|(it, _)| *it == name)?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn hierarchy(is_unified: bool, files: &[(&str, &str)]) -> (tempfile::TempDir, MemoryHierarchy) {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = dir.path().to_owned();
        (dir, MemoryHierarchy { root, is_unified })
    }

    /// Check that limits and counters of version 2 are read, those of the group itself if the kernel has them, and that a group can have no
    /// limit.
    #[test]
    fn version_2_is_read() {
        let events = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n";
        let (_dir, unified) = hierarchy(
            true,
            &[
                ("cgroup.controllers", "cpu memory pids\n"),
                ("a/memory.max", "max\n"),
                ("a/memory.events", events),
                ("a/memory.events.local", "max 0\noom 0\noom_kill 0\n"),
                ("a/b/memory.max", "33554432\n"),
                ("a/b/memory.events", events),
            ],
        );
        assert!(unified.has_memory());
        let memory = |limit, refused, kills| GroupMemory {
            limit,
            refused,
            was_full: false,
            kills,
        };
        assert_eq!(unified.read("/a"), Some(memory(None, 0, 2)));
        assert_eq!(unified.read("/a/b"), Some(memory(Some(32 << 20), 3, 2)));
        assert_eq!(unified.read("/"), None);
        assert_eq!(unified.read("/gone"), None);
        assert_eq!(unified.group_in("4:memory:/m\n0::/a/b:c\n"), Some("/a/b:c"));
    }

    /// Check that limits and counters of version 1 are read, with those of memory and swap together.
    #[test]
    fn version_1_is_read() {
        let (_dir, old) = hierarchy(
            false,
            &[
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory.failcnt", "0\n"),
                ("g/memory.limit_in_bytes", "33554432\n"),
                ("g/memory.failcnt", "40\n"),
                ("g/memory.memsw.failcnt", "2\n"),
                ("g/memory.max_usage_in_bytes", "33550336\n"),
                (
                    "g/memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
                ),
            ],
        );
        assert!(old.has_memory());
        let group = old.read("/g").unwrap();
        let expected = GroupMemory {
            limit: Some(32 << 20),
            refused: 42,
            was_full: true,
            kills: 1,
        };
        assert_eq!(group, expected);
        assert_eq!(old.read("/").unwrap(), GroupMemory::default());
        let text = "9:name=systemd:/s\n4:memory:/g\n0::/\n";
        assert_eq!(old.group_in(text), Some("/g"));
    }

    /// Check that paths that leave the hierarchy, and those that are too long, are refused, and that the groups above a group come in order.
    #[test]
    fn paths_stay_in_the_hierarchy() {
        let (_dir, old) = hierarchy(
            false,
            &[("memory.limit_in_bytes", "1"), ("memory.failcnt", "1")],
        );
        let long = format!("/{}", "x".repeat(MAX_PATH));
        for path in ["/../x", "/a/../../x", "x", "", &long] {
            assert_eq!(old.read(path), None, "{path}");
            assert_eq!(old.group_in(&format!("1:memory:{path}\n")), None);
        }
        let levels: Vec<_> = MemoryHierarchy::levels("/a/b").collect();
        assert_eq!(levels, ["/a/b", "/a", "/"]);
        let deep = "/x".repeat(400);
        assert_eq!(MemoryHierarchy::levels(&deep).count(), MAX_DEPTH);
    }
}
