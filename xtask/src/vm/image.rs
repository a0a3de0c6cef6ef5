//! The machine's file system: heaptrace, the fixtures, their libraries, busybox, and the script that runs
//! them.
//!
//! Part of `cargo xtask vm`. It must not know the kernel.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use heaptrace_tests::Fixture;

use super::console::Mark;
use crate::process;

/// Builds the file system, and returns the archive that the kernel unpacks into memory.
pub(super) fn build(folder: &Path, heaptrace: &Path, fixtures: &[Fixture]) -> Result<PathBuf> {
    let root = folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let mut tree = Tree {
        root,
        entries: BTreeSet::new(),
    };
    for folder in ["proc", "sys", "dev", "tmp"] {
        tree.folder(Path::new(folder))?;
    }
    let busybox = process::find_program("busybox").context("cannot find busybox")?;
    tree.copy(&busybox, Path::new("bin/busybox"))?;
    tree.link("bin/sh", "busybox")?;
    let mut programs: BTreeSet<&Path> = fixtures.iter().map(|it| it.path.as_path()).collect();
    programs.insert(heaptrace);
    for program in programs {
        tree.copy(program, &inside(program)?)?;
        for library in libraries(program)? {
            let path = library.strip_prefix("/")?;
            tree.copy(&library, path)?;
        }
    }
    let init = tree.path(Path::new("init"))?;
    fs::write(&init, script(heaptrace, fixtures)?)?;
    fs::set_permissions(&init, Permissions::from_mode(0o755))?;
    let archive = folder.join("initrd");
    tree.pack(&archive)?;
    Ok(archive)
}

/// The path of a program inside the machine.
fn inside(program: &Path) -> Result<PathBuf> {
    let name = program.file_name().context("a program without a name")?;
    Ok(Path::new("bin").join(name))
}

/// The files that the loader needs for a program.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let text = process::output(Command::new("ldd").arg(program).env("LC_ALL", "C"))?;
    Ok(text
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect())
}

/// The script of the machine. It runs each fixture once, with marks around its output.
fn script(heaptrace: &Path, fixtures: &[Fixture]) -> Result<String> {
    let heaptrace = inside(heaptrace)?;
    let mut script = String::from(
        "#!/bin/sh\n\
         PATH=/bin; export PATH\n\
         busybox mount -t proc proc /proc\n\
         busybox mount -t sysfs sysfs /sys\n\
         busybox mount -t devtmpfs devtmpfs /dev\n\
         echo # what the firmware printed ends without a new line\n",
    );
    for fixture in fixtures {
        let path = inside(&fixture.path)?;
        let name = path.file_name().unwrap_or_default().display().to_string();
        let (heaptrace, fixture) = (heaptrace.display(), path.display());
        let options = if name == "mappings" { "" } else { "--no-mmap " };
        let [run, record, report, errors, status, end] = Mark::ALL.map(Mark::text);
        script.push_str(&format!(
            "echo '{run}{name}'\n\
             /{heaptrace} record {options}-o /tmp/data -- /{fixture} >/tmp/output 2>/tmp/errors\n\
             status=$?\n\
             echo '{record}'; busybox cat /tmp/output\n\
             echo '{report}'; /{heaptrace} report --format json /tmp/data 2>>/tmp/errors\n\
             echo; echo '{errors}'; busybox cat /tmp/errors\n\
             echo; echo \"{status}$status\"\n\
             echo '{end}'\n\
             busybox rm -f /tmp/*\n"
        ));
    }
    script.push_str("busybox poweroff -f\n");
    Ok(script)
}

/// A folder that becomes an archive, and its entries.
struct Tree {
    root: PathBuf,
    entries: BTreeSet<PathBuf>,
}

impl Tree {
    fn folder(&mut self, path: &Path) -> Result<()> {
        fs::create_dir_all(self.root.join(path))?;
        for folder in path.ancestors() {
            if !folder.as_os_str().is_empty() {
                self.entries.insert(folder.to_owned());
            }
        }
        Ok(())
    }

    /// The host path of a new entry; its parent folder is made if needed.
    fn path(&mut self, path: &Path) -> Result<PathBuf> {
        self.folder(path.parent().unwrap_or(Path::new("")))?;
        self.entries.insert(path.to_owned());
        Ok(self.root.join(path))
    }

    fn copy(&mut self, from: &Path, to: &Path) -> Result<()> {
        let to = self.path(to)?;
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    }

    fn link(&mut self, path: &str, target: &str) -> Result<()> {
        let path = self.path(Path::new(path))?;
        Ok(symlink(target, path)?)
    }

    fn pack(&self, archive: &Path) -> Result<()> {
        let mut cpio = Command::new("cpio")
            .args(["--create", "--quiet", "--null"])
            .args(["--format=newc", "--owner=0:0", "--file"])
            .arg(archive)
            .current_dir(&self.root)
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot run cpio")?;
        let mut names = cpio.stdin.take().context("cpio has no input")?;
        // Sorted, so that a folder comes before its content.
        for entry in &self.entries {
            names.write_all(entry.as_os_str().as_bytes())?;
            names.write_all(&[0])?;
        }
        drop(names);
        let status = cpio.wait()?;
        ensure!(status.success(), "cpio failed: {status}");
        Ok(())
    }
}
