//! Makes a file that only its owner may read, owned by the person at the keyboard.
//!
//! Stage: profile. Addresses and names out of other people's processes are in it, and heaptrace
//! mostly runs as root: neither may a stranger read the file, nor may a link that a stranger left
//! in a shared folder make root overwrite something.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Someone a file can belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// Opens a file to be written from its beginning, with mode 0600 and owned by the user who called
/// `sudo`, if one did.
///
/// Devices and pipes are opened as they are.
pub fn create_private(path: &Path) -> io::Result<File> {
    create(path, effective_uid(), sudo_caller())
}

fn effective_uid() -> u32 {
    // SAFETY: takes no arguments and can't fail.
    unsafe { libc::geteuid() }
}

/// Whom sudo runs us for. Anybody can set the variables, so they count only for root.
fn sudo_caller() -> Option<Owner> {
    if effective_uid() != 0 {
        return None;
    }
    let id = |name| std::env::var(name).ok()?.parse().ok();
    Some(Owner {
        uid: id("SUDO_UID")?,
        gid: id("SUDO_GID")?,
    })
}

fn create(path: &Path, me: u32, caller: Option<Owner>) -> io::Result<File> {
    let ours = |uid| uid == 0 || uid == me || caller.is_some_and(|caller| caller.uid == uid);
    let file = open(path, libc::O_NOFOLLOW).or_else(|error| {
        // A link, then. /dev/stdout is one, and belongs to root.
        if error.raw_os_error() != Some(libc::ELOOP) {
            return Err(error);
        }
        if ours(path.symlink_metadata()?.uid()) {
            open(path, 0)
        } else {
            Err(io::Error::other("it is a link made by another user"))
        }
    })?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(file);
    }
    if !ours(metadata.uid()) {
        return Err(io::Error::other("it belongs to another user"));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    if let Some(Owner { uid, gid }) = caller
        && (metadata.uid(), metadata.gid()) != (uid, gid)
    {
        // SAFETY: the descriptor is open; the call takes no pointers.
        if unsafe { libc::fchown(file.as_raw_fd(), uid, gid) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // Only now, when it is known whose content that is.
    file.set_len(0)?;
    Ok(file)
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Check that a file is emptied and made private, whatever it was before.
    #[test]
    fn private_and_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, "older and longer").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        create_private(&path).unwrap().write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    }

    /// Check that one's own link is followed, and that a stranger's is not, nor its target touched.
    #[test]
    fn links() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("link"), dir.path().join("target"));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let me = path.symlink_metadata().unwrap().uid();
        if me == 0 {
            // Made a stranger's by giving it away, which only root can.
            std::os::unix::fs::lchown(&path, Some(12345), None).unwrap();
            assert!(create(&path, me, None).is_err());
        } else {
            // Seen with a stranger's eyes.
            assert!(create(&path, me + 1, None).is_err());
        }
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");

        let link = path.symlink_metadata().unwrap();
        create(&path, link.uid(), None).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }

    /// Check that a device is left as it is.
    #[test]
    fn devices() {
        let before = Path::new("/dev/null").metadata().unwrap();
        create_private(Path::new("/dev/null")).unwrap();
        let after = Path::new("/dev/null").metadata().unwrap();
        assert_eq!(before.mode(), after.mode());
        assert_eq!(before.uid(), after.uid());
    }
}
