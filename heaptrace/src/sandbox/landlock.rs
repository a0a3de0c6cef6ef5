//! Restriction of file system rights (Landlock, since Linux 5.13).
//!
//! No stage of the flow. A restricted thread, and each process that it starts, can reach only the given folders and can't
//! open a connection. An older kernel restricts only the rights that it knows. The calls are raw: rustix has none of them.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// How far this kernel could apply a restriction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// All rights that this kernel's Landlock knows are restricted.
    Restricted,
    /// Nothing is restricted: the kernel has no Landlock, or has it switched off.
    Unsupported,
}

/// A folder or a file that stays reachable.
#[derive(Clone, Copy, Debug)]
pub struct Allowed<'f> {
    /// The open folder or file.
    pub below: BorrowedFd<'f>,
    /// The rights that stay.
    pub access: Access,
}

/// Rights below a folder.
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

/// The rights that the first version of Landlock knows: the thirteen lowest.
const FIRST: u64 = (1 << 13) - 1;
const IOCTL_DEV: u64 = 1 << 15;

/// Rights that apply to a single file. The kernel refuses a rule that gives a file the rights of folders.
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

/// Takes away all files except those below the given folders, from this thread and each process that it starts. The
/// thread must have given up new privileges before ([`super::rights::no_new_privileges`]).
pub fn restrict(allowed: &[Allowed<'_>]) -> io::Result<Done> {
    let Some(version) = version() else {
        return Ok(Done::Unsupported);
    };
    let mut ruleset = Ruleset {
        files: FIRST,
        net: 0,
        scoped: 0,
    };
    // A kernel refuses the rights of later versions.
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
    // SAFETY: the struct is valid, and at least as long as `size`.
    let made = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(&ruleset),
            size,
            0,
        )
    };
    let made = checked(made)?;
    // SAFETY: the kernel has just returned this descriptor, so nothing else owns it.
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
    Ok(Done::Restricted)
}

/// The kernel's version of Landlock; `None` if the kernel has no Landlock, or has it switched off.
fn version() -> Option<i64> {
    const VERSION: u32 = 1;
    let none = std::ptr::null::<u8>();
    // SAFETY: with this flag the kernel reads no struct.
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

    /// Check that a restricted thread can read the files below a given folder, and can do nothing else.
    #[test]
    fn only_given_folders_are_reachable() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        for folder in [&inside, &outside] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "text").unwrap();
        }
        // In a thread of its own: a restriction applies to one thread, not to its process.
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
