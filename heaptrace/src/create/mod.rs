//! The only way in which heaptrace makes files: private, whole, and where the user meant them to be.
//!
//! No stage of the flow; imports none, and all may use it. Addresses and names out of other people's
//! processes are in these files, and heaptrace mostly runs as root. So a stranger must not read them, and must
//! not choose what is overwritten. The folder is opened once and held. A new file is made in it under a name
//! that did not exist, and then takes the place of the name that was asked for, whatever stands there by then:
//! nothing that is there is ever opened to be written. Only streams are, and never so that it blocks.

mod identity;
#[cfg(test)]
mod tests;
mod walk;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use identity::Identity;
use walk::{End, Found};

/// Where an output goes.
#[derive(Debug)]
pub struct Destination {
    identity: Identity,
    place: Place,
}

#[derive(Debug)]
enum Place {
    File { folder: OwnedFd, name: OsString },
    Stream(OwnedFd),
}

/// A file that is in a folder under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether it is a regular file that may be replaced.
    pub is_replaceable: bool,
    /// Its length.
    pub len: u64,
}

impl Destination {
    /// Finds where a path leads, and whether a file can be put there. Nothing is made or changed yet.
    ///
    /// What a process has open (`/dev/stdout`) and devices that take anything (`/dev/null`) are streams; a
    /// file takes the place of the one before it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_for(path, Identity::current())
    }

    fn open_for(path: &Path, identity: Identity) -> io::Result<Self> {
        let place = match walk::walk(path, identity)? {
            End::Open(handle) => Place::Stream(handle),
            End::Name {
                found: Some(Found { handle, stat }),
                ..
            } if is_bottomless(&stat) => Place::Stream(handle),
            End::Name {
                folder,
                name,
                found,
            } => {
                if let Some(Found { stat, .. }) = found {
                    check_replaced(identity, &folder, &stat)?;
                }
                Place::File { folder, name }
            }
        };
        Ok(Self { identity, place })
    }

    /// The name in its folder; `None` for a stream.
    pub fn name(&self) -> Option<&OsStr> {
        match &self.place {
            Place::File { name, .. } => Some(name),
            Place::Stream(_) => None,
        }
    }

    /// Begins a file that is to be seen once it is whole.
    pub fn begin(&self) -> io::Result<Pending> {
        let (folder, name) = match &self.place {
            Place::File { folder, name } => (folder, name),
            Place::Stream(handle) => {
                return Ok(Pending {
                    file: Some(stream(handle, self.identity)?),
                    target: None,
                });
            }
        };
        let random = RandomState::new();
        for attempt in 0_u32.. {
            let temporary = format!(".heaptrace-{:016x}.tmp", random.hash_one(attempt));
            let flags = OFlags::WRONLY
                | OFlags::CREATE
                | OFlags::EXCL
                | OFlags::NOFOLLOW
                | OFlags::NONBLOCK
                | OFlags::CLOEXEC;
            match rustix::fs::openat(folder, &temporary, flags, Mode::from_raw_mode(0o600)) {
                Ok(file) => {
                    let pending = Pending {
                        file: Some(file.into()),
                        target: Some(Target {
                            identity: self.identity,
                            folder: folder.try_clone()?,
                            name: name.clone(),
                            temporary: temporary.into(),
                        }),
                    };
                    self.identity.give(pending.file()?)?;
                    return Ok(pending);
                }
                Err(Errno::EXIST) if attempt < 100 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Makes a file that is written as a run goes: it has its name from the beginning.
    pub fn create(&self) -> io::Result<File> {
        self.begin()?.commit()
    }

    /// What stands in the folder under another name, which is looked at and not followed.
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        let folder = self.folder()?;
        Ok(look(folder, name)?.map(|stat| Entry {
            is_replaceable: check_replaced(self.identity, folder, &stat).is_ok(),
            len: stat.st_size.try_into().unwrap_or(0),
        }))
    }

    /// Opens a regular file of the folder to be read.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.folder()?, name, flags, Mode::empty())?;
        let file = File::from(file);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok(file)
    }

    /// Gives a file of the folder another name there.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let folder = self.folder()?;
        Ok(rustix::fs::renameat(folder, from, folder, to)?)
    }

    fn folder(&self) -> io::Result<&OwnedFd> {
        match &self.place {
            Place::File { folder, .. } => Ok(folder),
            Place::Stream(_) => Err(io::Error::other("a stream is in no folder")),
        }
    }
}

/// A new file, which has no name yet that anybody knows. Dropped, it is gone.
#[derive(Debug)]
pub struct Pending {
    file: Option<File>,
    /// Where it goes; `None` for a stream, which is there already.
    target: Option<Target>,
}

#[derive(Debug)]
struct Target {
    identity: Identity,
    folder: OwnedFd,
    name: OsString,
    temporary: OsString,
}

impl Pending {
    /// The file, to be written.
    pub fn file(&self) -> io::Result<&File> {
        self.file
            .as_ref()
            .ok_or_else(|| io::Error::other("it was closed"))
    }

    /// The folder in which it gets its name; `None` for a stream.
    pub fn folder(&self) -> Option<BorrowedFd<'_>> {
        self.target.as_ref().map(|target| target.folder.as_fd())
    }

    /// Gives it its name, in the place of the file that has it.
    pub fn commit(mut self) -> io::Result<File> {
        if let Some(target) = &self.target {
            target.take_name()?;
        }
        self.target = None;
        self.file
            .take()
            .ok_or_else(|| io::Error::other("it was closed"))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(target) = &self.target {
            let _ = rustix::fs::unlinkat(&target.folder, &target.temporary, AtFlags::empty());
        }
    }
}

impl Target {
    fn take_name(&self) -> io::Result<()> {
        // Once more, as the folder may be one in which others write. What comes into it after this look
        // loses its name, and nothing of its content.
        match look(&self.folder, &self.name)? {
            Some(found) => {
                check_replaced(self.identity, &self.folder, &found)?;
                self.rename(RenameFlags::empty())
            }
            None => match self.rename(RenameFlags::NOREPLACE) {
                // Some file systems can't.
                Err(Errno::INVAL) => self.rename(RenameFlags::empty()),
                renamed => renamed,
            },
        }
        .map_err(io::Error::from)
    }

    fn rename(&self, flags: RenameFlags) -> Result<(), Errno> {
        rustix::fs::renameat_with(
            &self.folder,
            &self.temporary,
            &self.folder,
            &self.name,
            flags,
        )
    }
}

/// What has a name in a folder.
fn look(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn check_replaced(identity: Identity, folder: &OwnedFd, found: &Stat) -> io::Result<()> {
    identity.check_replaced(&rustix::fs::fstat(folder)?, found)
}

/// Whether it is `/dev/null`, `/dev/zero` or `/dev/full`: what goes there harms nobody.
fn is_bottomless(stat: &Stat) -> bool {
    const MEMORY: u32 = 1;
    let (major, minor) = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && major == MEMORY
        && matches!(minor, 3 | 5 | 7)
}

/// Opens a stream to be written. A regular file, as behind `heaptrace … -o /dev/stdout > file`, is emptied and
/// made private.
fn stream(handle: &OwnedFd, identity: Identity) -> io::Result<File> {
    let stream = walk::reopen(handle, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = rustix::fs::fstat(&stream)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        identity.check_written(&stat)?;
        rustix::fs::fchmod(&stream, Mode::from_raw_mode(0o600))?;
        identity.give(&stream)?;
        rustix::fs::ftruncate(&stream, 0)?;
    }
    // It was opened so that it could not block; that a reader is slow is no error.
    rustix::fs::fcntl_setfl(&stream, OFlags::empty())?;
    Ok(stream.into())
}
