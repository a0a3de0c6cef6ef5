//! Control groups of a test's own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A control group, removed when this goes; its processes have to be gone by then.
pub struct Group(PathBuf);

impl Group {
    /// One of the unified hierarchy.
    pub fn unified(name: &str) -> Result<Self> {
        let root = mounted(|kind, _| kind == "cgroup2")?;
        Self::below_root(
            &root.context("this test needs a mounted cgroup2 hierarchy")?,
            name,
        )
    }

    /// One whose processes can have so much memory, wherever that is limited on this machine.
    pub fn of_memory(name: &str, bytes: u64) -> Result<Self> {
        let is_old = |kind: &str, options: &str| {
            kind == "cgroup" && options.split(',').any(|option| option == "memory")
        };
        let (group, limit) = match mounted(is_old)? {
            Some(root) => (Self::below_root(&root, name)?, "memory.limit_in_bytes"),
            None => {
                let group = Self::unified(name)?;
                let parent = group.0.parent().context("no parent")?;
                fs::write(parent.join("cgroup.subtree_control"), "+memory")
                    .context("this test needs the memory controller")?;
                (group, "memory.max")
            }
        };
        fs::write(group.0.join(limit), bytes.to_string()).context("cannot limit memory")?;
        Ok(group)
    }

    fn below_root(root: &Path, name: &str) -> Result<Self> {
        let folder = root.join(format!("heaptrace-test-{}-{name}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Makes one below this one.
    pub fn below(&self, name: &str) -> Result<PathBuf> {
        let folder = self.0.join(name);
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Where it stands.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// As /proc names it.
    pub fn name(&self) -> Result<String> {
        let name = self.0.file_name().context("no name")?;
        Ok(format!("/{}", name.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(entry.path());
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// Where a file system of some kind, with some options, is mounted.
fn mounted(is_it: impl Fn(&str, &str) -> bool) -> Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut mounts = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    Ok(mounts.find_map(|words| match words.as_slice() {
        [_, at, kind, options, ..] if is_it(kind, options) => Some(PathBuf::from(at)),
        _ => None,
    }))
}
