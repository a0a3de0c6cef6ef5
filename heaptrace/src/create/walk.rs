//! Resolves the path of an output file to an open folder and a name in it.
//!
//! No stage of the flow; imports none. Follows a symbolic link only if no other user can have put it there.
//! Must not know the content that is written.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::Errno;

use super::identity::Identity;

/// The largest number of symbolic links on a path; the kernel has the same limit.
const MAX_LINKS: u32 = 40;

/// The end of a path.
#[derive(Debug)]
pub(super) enum End {
    /// A name in a folder, with the existing file of that name, if there is one.
    Name {
        folder: OwnedFd,
        name: OsString,
        found: Option<Found>,
    },
    /// A file that a process has open: `/dev/stdout`, `/dev/fd/3`.
    Open(OwnedFd),
}

/// An existing file at the end of the path, opened with `O_PATH` only.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) handle: OwnedFd,
    pub(super) stat: Stat,
}

/// Resolves a path to its end.
pub(super) fn walk(path: &Path, identity: Identity) -> io::Result<End> {
    let mut left = steps(path);
    let mut folder = start(path)?;
    let mut links = 0;
    while let Some(step) = left.pop() {
        let is_last = left.is_empty();
        let handle = match open_at(&folder, &step, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(handle) => handle,
            Err(Errno::NOENT) if is_last => {
                return Ok(End::Name {
                    folder,
                    name: step,
                    found: None,
                });
            }
            Err(error) => return Err(error.into()),
        };
        let stat = rustix::fs::fstat(&handle)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            if is_last && step != ".." {
                return Ok(End::Name {
                    folder,
                    name: step,
                    found: Some(Found { handle, stat }),
                });
            }
            folder = open_at(&handle, OsStr::new("."), OFlags::PATH | OFlags::DIRECTORY)?;
            continue;
        }
        identity.check_link(&rustix::fs::fstat(&folder)?, &stat)?;
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = rustix::fs::readlinkat(&handle, "", Vec::new())?;
        let target = OsString::from_vec(target.into_bytes());
        if is_magic(&folder, &target)? {
            // The target text of such a link is not its real destination.
            let handle = open_at(&folder, &step, OFlags::PATH)?;
            if is_last {
                return Ok(End::Open(handle));
            }
            folder = handle;
            continue;
        }
        let target = Path::new(&target);
        if target.is_absolute() {
            folder = start(target)?;
        }
        left.extend(steps(target));
    }
    Err(io::Error::other("it is a folder"))
}

/// The components of a path in reverse order, so that the first one is popped first.
fn steps(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|step| matches!(step, Component::Normal(_) | Component::ParentDir))
        .map(|step| step.as_os_str().to_owned())
        .collect()
}

fn start(path: &Path) -> Result<OwnedFd, Errno> {
    let start = if path.is_absolute() { "/" } else { "." };
    rustix::fs::open(
        start,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn open_at(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Whether a link in `/proc` leads to an open file of a process. Links between names in `/proc`
/// (`/proc/self`) are relative.
fn is_magic(folder: &OwnedFd, target: &OsStr) -> io::Result<bool> {
    let is_proc = rustix::fs::fstatfs(folder)?.f_type == PROC_SUPER_MAGIC;
    let text = target.as_encoded_bytes();
    Ok(is_proc && (text.starts_with(b"/") || text.contains(&b':')))
}

/// Opens a file again that was opened with `O_PATH`, without resolving its name a second time.
pub(super) fn reopen(handle: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    rustix::fs::openat(CWD, link, flags | OFlags::CLOEXEC, Mode::empty())
}
