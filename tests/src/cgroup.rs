//! Control groups that a test creates for itself.
//!
//! Part of the harness. It knows both versions of the hierarchy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A control group, removed on drop. Its processes must have ended by then.
pub struct Group(PathBuf);

impl Group {
    /// Creates a group in the unified hierarchy.
    pub fn unified(name: &str) -> Result<Self> {
        let root = mounted(|kind, _| kind == "cgroup2")?;
        Self::below_root(
            &root.context("this test needs a mounted cgroup2 hierarchy")?,
            name,
        )
    }

    /// Creates a group whose processes can have so much memory, in the hierarchy that limits memory on this machine.
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
        // What is swapped out does not count: a process could go on until the machine's swap is full.
        for (file, value) in [
            ("memory.swap.max", 0),
            ("memory.memsw.limit_in_bytes", bytes),
        ] {
            let path = group.0.join(file);
            if path.exists() {
                fs::write(path, value.to_string()).context("cannot limit swap")?;
            }
        }
        Ok(group)
    }

    fn below_root(root: &Path, name: &str) -> Result<Self> {
        let folder = root.join(format!("heaptrace-test-{}-{name}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Creates a group below this one.
    pub fn below(&self, name: &str) -> Result<PathBuf> {
        let folder = self.0.join(name);
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Its path as `/proc/PID/cgroup` shows it.
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

/// The mount point of the first file system whose type and options fulfil a condition.
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
