//! The process filter, in the form that the kernel program uses.
//!
//! Part of `kernel`. Compiles name patterns, and finds the ids of control groups. The kernel program decides,
//! before it records the first allocation of a process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use heaptrace_common::limits::MAX_SELECTED;
use heaptrace_common::names::{NamePatterns, PatternError};
use heaptrace_common::wire::{NameFilter, selection as criterion};

use crate::config::Selection;

/// The criteria that select processes.
pub struct ProcessFilter {
    /// Which criteria there are: bits of [`selection`](criterion).
    pub criteria: u32,
    /// Patterns for names.
    pub names: Box<NameFilter>,
    /// Ids of control groups.
    pub cgroups: Vec<u64>,
    /// Ids of users.
    pub users: Vec<u32>,
}

impl ProcessFilter {
    /// Translates a selection for this machine.
    pub fn new(selection: &Selection) -> Result<Self> {
        let bit = |bit, is_empty: bool| if is_empty { 0 } else { bit };
        let most = MAX_SELECTED as usize;
        if selection.cgroups.len() > most || selection.users.len() > most {
            bail!("a run can select at most {most} control groups and {most} users");
        }
        Ok(Self {
            criteria: bit(criterion::NAME, selection.names.is_empty())
                | bit(criterion::EXCLUDE, selection.excluded.is_empty())
                | bit(criterion::CGROUP, selection.cgroups.is_empty())
                | bit(criterion::USER, selection.users.is_empty()),
            names: Box::new(NameFilter {
                include: patterns("--comm", &selection.names)?,
                exclude: patterns("--exclude", &selection.excluded)?,
            }),
            cgroups: if selection.cgroups.is_empty() {
                Vec::new()
            } else {
                let root = unified_root()?;
                let id = |path: &PathBuf| cgroup_id(&root, path);
                selection.cgroups.iter().map(id).collect::<Result<_>>()?
            },
            users: selection.users.clone(),
        })
    }
}

fn patterns(option: &str, patterns: &[String]) -> Result<NamePatterns> {
    let mut all = NamePatterns::NONE;
    for pattern in patterns {
        all.add(pattern.as_bytes()).map_err(|error| {
            let problem = match error {
                PatternError::TooLong => {
                    "the kernel keeps 15 bytes of a process name: end it with * before that"
                }
                PatternError::TooMany => "all patterns together may have some sixty letters",
                PatternError::Unfinished => "a [ needs its ], and a \\ needs a sign after it",
            };
            anyhow::anyhow!("{option} {pattern}: {problem}")
        })?;
    }
    Ok(all)
}

/// The kernel's id of a control group: the inode number of its folder.
fn cgroup_id(root: &Path, path: &Path) -> Result<u64> {
    // The path is as in /proc/PID/cgroup, or it is the folder's.
    let below = path.strip_prefix(root).unwrap_or(path);
    let below: PathBuf = below
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let folder = root.join(below);
    let meta = std::fs::metadata(&folder).with_context(|| {
        format!(
            "there is no control group {}: {} does not exist (/proc/PID/cgroup names the group of a process)",
            path.display(),
            folder.display()
        )
    })?;
    if !meta.is_dir() {
        bail!("{} is no control group, but a file", folder.display());
    }
    Ok(meta.ino())
}

/// Where the unified hierarchy of control groups is mounted. The kernel program sees only that hierarchy.
fn unified_root() -> Result<PathBuf> {
    let mounts = std::fs::read("/proc/self/mounts").context("/proc/self/mounts")?;
    find_unified(&mounts).context(
        "no unified hierarchy of control groups (cgroup2) is mounted here, which --cgroup needs",
    )
}

fn find_unified(mounts: &[u8]) -> Option<PathBuf> {
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let mut words = line.split(|byte| *byte == b' ').skip(1);
        let mount_point = words.next()?;
        (words.next()? == b"cgroup2").then(|| PathBuf::from(OsStr::from_bytes(mount_point)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the unified hierarchy is found among other mounts, and not if there is none.
    #[test]
    fn the_unified_hierarchy_is_found() {
        let mixed = b"cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(find_unified(mixed), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(find_unified(b"cgroup2 /x tmpfs rw 0 0\n"), None);
        assert_eq!(find_unified(b""), None);
    }

    /// Check that a group is found by its folder and by its name in /proc, and that no path leads out of the
    /// hierarchy.
    #[test]
    fn groups_are_found() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a.slice/b.service");
        std::fs::create_dir_all(&group).unwrap();
        let id = std::fs::metadata(&group).unwrap().ino();
        for path in [
            group.as_path(),
            Path::new("/a.slice/b.service"),
            Path::new("a.slice/b.service/"),
        ] {
            assert_eq!(cgroup_id(root.path(), path).unwrap(), id, "{path:?}");
        }
        let top = std::fs::metadata(root.path()).unwrap().ino();
        assert_eq!(cgroup_id(root.path(), Path::new("/")).unwrap(), top);
        assert_eq!(cgroup_id(root.path(), Path::new("../..")).unwrap(), top);
        let error = cgroup_id(root.path(), Path::new("/c")).unwrap_err();
        assert!(error.to_string().contains("/c"), "{error}");
    }

    /// Check that an empty selection has no criteria, and that the error of an invalid pattern names its
    /// option.
    #[test]
    fn errors_name_the_option() {
        let none = ProcessFilter::new(&Selection::default()).unwrap();
        assert_eq!(none.criteria, 0);
        let selection = Selection {
            excluded: vec!["a-name-that-is-too-long".to_owned()],
            ..Selection::default()
        };
        let error = ProcessFilter::new(&selection).err().unwrap().to_string();
        assert!(error.starts_with("--exclude a-name"), "{error}");
    }
}
