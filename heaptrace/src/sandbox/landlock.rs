//! File system rights that a process gives up (Landlock, since Linux 5.13).
//!
//! No stage of the flow. From here on a thread, and what it starts, reaches only the folders that were given, and opens
//! no connection. A kernel that does not have all of it takes away what it knows.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use super::Done;

/// A folder, or a file, that can still be reached, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Allowed<'f> {
    /// It, open.
    pub below: BorrowedFd<'f>,
    /// What for.
    pub access: Access,
}

/// What can be done below a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read files, and list folders.
    Read,
    /// The same, and create, write, rename and delete files.
    Write,
}

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_REG: u64 = 1 << 8;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

/// What the first version knows: the thirteen lowest rights.
const FIRST: u64 = (1 << 13) - 1;
const IOCTL_DEV: u64 = 1 << 15;

/// Rights that a file can have by itself; those of folders are refused for it.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

impl Access {
    fn rights(self) -> u64 {
        match self {
            Self::Read => READ_FILE | READ_DIR,
            Self::Write => {
                READ_FILE | READ_DIR | WRITE_FILE | REMOVE_FILE | MAKE_REG | REFER | TRUNCATE
            }
        }
    }
}

/// The kernel's `struct landlock_ruleset_attr`.
#[repr(C)]
struct Ruleset {
    files: u64,
    net: u64,
    scoped: u64,
}

/// The kernel's `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    access: u64,
    folder: i32,
}

/// Gives up all files but those below the folders, by this thread and what it starts. It must have given up new
/// privileges before ([`super::rights::no_new_privileges`]).
pub fn restrict(allowed: &[Allowed<'_>]) -> io::Result<Done> {
    let Some(version) = version() else {
        return Ok(Done::Unsupported);
    };
    let mut ruleset = Ruleset {
        files: FIRST,
        net: 0,
        scoped: 0,
    };
    // Each version's rights are refused by the one before it.
    for (since, rights) in [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)] {
        if version >= since {
            ruleset.files |= rights;
        }
    }
    if version >= 4 {
        ruleset.net = 3;
    }
    if version >= 6 {
        ruleset.scoped = 3;
    }
    let size = match version {
        ..4 => 8,
        4 | 5 => 16,
        _ => size_of::<Ruleset>(),
    };
    // SAFETY: the struct is valid, and at least as long as said.
    let made = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(&ruleset),
            size,
            0,
        )
    };
    let made = checked(made)?;
    // SAFETY: a descriptor that the kernel has just given to us alone.
    let made = unsafe { OwnedFd::from_raw_fd(made as i32) };
    for one in allowed {
        let is_folder = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(one.below)?.st_mode)
            == rustix::fs::FileType::Directory;
        let of_kind = if is_folder { u64::MAX } else { OF_FILES };
        let beneath = Beneath {
            access: one.access.rights() & ruleset.files & of_kind,
            folder: one.below.as_raw_fd(),
        };
        const PATH_BENEATH: i32 = 1;
        // SAFETY: the struct is valid, and both descriptors are open.
        checked(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                made.as_raw_fd(),
                PATH_BENEATH,
                std::ptr::from_ref(&beneath),
                0,
            )
        })?;
    }
    // SAFETY: the descriptor is open.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, made.as_raw_fd(), 0) })?;
    Ok(Done::Whole)
}

/// The kernel's version of Landlock; `None` where it has none, or has it switched off.
fn version() -> Option<i64> {
    const VERSION: u32 = 1;
    let none = std::ptr::null::<u8>();
    // SAFETY: with this flag no struct is read.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, VERSION) };
    (version > 0).then_some(version)
}

fn checked(result: i64) -> io::Result<i64> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::sandbox::rights;

    /// Check that a thread reaches what it was given, and nothing else.
    #[test]
    fn only_what_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        for folder in [&inside, &outside] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "text").unwrap();
        }
        // What a thread gives up is not given up by its process.
        std::thread::spawn(move || {
            let folder = File::open(&inside).unwrap();
            rights::no_new_privileges().unwrap();
            let done = restrict(&[Allowed {
                below: folder.as_fd(),
                access: Access::Read,
            }])
            .unwrap();
            if done == Done::Unsupported {
                return;
            }
            assert_eq!(fs::read(inside.join("file")).unwrap(), b"text");
            assert!(fs::write(inside.join("file"), "other").is_err());
            assert!(fs::read(outside.join("file")).is_err());
        })
        .join()
        .unwrap();
    }
}
