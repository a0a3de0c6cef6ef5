//! Decides which files, folders and symbolic links heaptrace can trust when it writes.
//!
//! No stage of the flow; imports none. Looks only at what `stat` returns; opens nothing.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Gid, Stat, Uid};

/// The users that heaptrace writes files for: its own effective user, and the user that called `sudo`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    /// The effective user id of this process.
    me: u32,
    /// The user id and group id that called `sudo`.
    caller: Option<(u32, u32)>,
}

impl Identity {
    /// The identity of this process.
    pub(super) fn current() -> Self {
        let me = rustix::process::geteuid().as_raw();
        Self {
            me,
            caller: if me == 0 { sudo_caller() } else { None },
        }
    }

    /// An identity that a test makes up.
    #[cfg(test)]
    pub(super) fn of(me: u32, caller: Option<(u32, u32)>) -> Self {
        Self { me, caller }
    }

    /// Whether a file of this user is trusted like one of our own.
    fn is_ours(self, uid: u32) -> bool {
        uid == self.me || self.caller.is_some_and(|(caller, _)| caller == uid)
    }

    /// Whether no other user can change the content of a folder: it belongs to us or to root, and neither its
    /// group nor others can write to it. The sticky bit makes no difference, because every user can still add
    /// names.
    fn is_closed(self, folder: &Stat) -> bool {
        (folder.st_uid == 0 || self.is_ours(folder.st_uid)) && folder.st_mode & 0o022 == 0
    }

    /// Checks that a symbolic link can be followed: no other user can have put it where it is.
    ///
    /// If others can write to the folder, the link must belong to us, and links of root don't count as ours,
    /// even when we are root. Any user can make a hard link to a symbolic link of root (unless
    /// `fs.protected_hardlinks` is set), or move one out of another folder that this user can write to. So
    /// root as the owner does not prove that root put the link there.
    pub(super) fn check_link(self, folder: &Stat, link: &Stat) -> io::Result<()> {
        let is_placed_by_us = link.st_uid != 0 && self.is_ours(link.st_uid);
        if is_placed_by_us || self.is_closed(folder) {
            return Ok(());
        }
        Err(io::Error::other(
            "it leads over a symbolic link in a folder that another user can write to, which is not followed; \
             give the path that the link leads to",
        ))
    }

    /// Checks that a new file is allowed to replace the existing one.
    pub(super) fn check_replaced(self, folder: &Stat, file: &Stat) -> io::Result<()> {
        let message = match FileType::from_raw_mode(file.st_mode) {
            FileType::RegularFile if self.is_ours(file.st_uid) || self.is_closed(folder) => {
                return Ok(());
            }
            FileType::RegularFile => {
                "it belongs to another user, and others can write to its folder"
            }
            FileType::Directory => "it is a folder",
            FileType::Fifo => "it is a FIFO",
            FileType::Socket => "it is a socket",
            FileType::BlockDevice | FileType::CharacterDevice => "it is a device",
            _ => "it is not a regular file",
        };
        Err(io::Error::other(message))
    }

    /// Checks a file that is already open, such as the one behind `/dev/stdout`.
    pub(super) fn check_written(self, file: &Stat) -> io::Result<()> {
        if file.st_uid == 0 || self.is_ours(file.st_uid) {
            return Ok(());
        }
        Err(io::Error::other("it belongs to another user"))
    }

    /// Gives a file that we made to the user that called `sudo`.
    pub(super) fn give(self, file: impl AsFd) -> io::Result<()> {
        let Some((uid, gid)) = self.caller else {
            return Ok(());
        };
        let found = rustix::fs::fstat(&file)?;
        // Some file systems store no owners, and return an error even for a change to the owner that they
        // report.
        if (found.st_uid, found.st_gid) != (uid, gid) {
            rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        Ok(())
    }
}

/// The user that called `sudo`. Any user can set these variables, so they are read only when we run as root.
fn sudo_caller() -> Option<(u32, u32)> {
    let id = |name| std::env::var(name).ok()?.parse().ok();
    Some((id("SUDO_UID")?, id("SUDO_GID")?))
}
