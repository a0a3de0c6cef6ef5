//! Makes every file that heaptrace writes: private, complete, and where the user asked for it.
//!
//! No stage of the flow; imports none, and every stage can use it. The files hold addresses and names of
//! other users' processes, and heaptrace usually runs as root. So other users must not read the files, and
//! must not choose which file is overwritten.
//!
//! The folder is opened once and kept open. A new file is made in it under a new name, and is then renamed to
//! the name that the user asked for. An existing file is never opened for writing. Only streams are, and
//! opening one never blocks.

mod identity;
mod ownership;
#[cfg(test)]
mod tests;
mod unfinished;
mod walk;

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use identity::Identity;
use unfinished::Watch;
use walk::{End, Found};

/// The place where an output is written.
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

/// An existing file in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether it is a regular file that can be replaced.
    pub is_replaceable: bool,
    /// Its length in bytes.
    pub len: u64,
}

impl Destination {
    /// Resolves a path, and checks that a file can be put there. It makes and changes nothing yet.
    ///
    /// Open files (`/dev/stdout`) and devices that accept any data (`/dev/null`) are streams. A regular file
    /// is replaced.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_for(path, Identity::current())
    }

    fn open_for(path: &Path, identity: Identity) -> io::Result<Self> {
        let place = match walk::walk(path, identity)? {
            End::Open(handle) => Place::Stream(handle),
            End::Name {
                found: Some(Found { handle, stat }),
                ..
            } if is_data_sink(&stat) => Place::Stream(handle),
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

    /// The file's name in its folder; `None` for a stream.
    pub fn name(&self) -> Option<&OsStr> {
        match &self.place {
            Place::File { name, .. } => Some(name),
            Place::Stream(_) => None,
        }
    }

    /// Whether the output replaces no file, or one that heaptrace made. An empty file has nothing to lose.
    pub fn is_own(&self) -> io::Result<bool> {
        let Some(name) = self.name() else {
            return Ok(true);
        };
        match self.entry(name)? {
            Some(entry) if entry.len > 0 && !ownership::is_own_name(name) => {
                Ok(ownership::is_own(self.read(name)?))
            }
            _ => Ok(true),
        }
    }

    /// Begins a file that gets its name only when it is complete.
    pub fn begin(&self) -> io::Result<Pending> {
        let (folder, name) = match &self.place {
            Place::File { folder, name } => (folder, name),
            Place::Stream(handle) => {
                return Ok(Pending {
                    watch: None,
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
                    ownership::mark(&file);
                    let pending = Pending {
                        watch: None,
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

    /// Makes a file that is written during a run. It has its name from the beginning.
    pub fn create(&self) -> io::Result<File> {
        self.begin()?.commit()
    }

    /// Looks up another name in the folder, without following a symbolic link.
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        let folder = self.folder()?;
        Ok(stat_of(folder, name)?.map(|stat| Entry {
            is_replaceable: check_replaced(self.identity, folder, &stat).is_ok(),
            len: stat.st_size.try_into().unwrap_or(0),
        }))
    }

    /// Opens a regular file of the folder for reading.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.folder()?, name, flags, Mode::empty())?;
        let file = File::from(file);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        Ok(file)
    }

    /// Renames a file inside the folder.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let folder = self.folder()?;
        Ok(rustix::fs::renameat(folder, from, folder, to)?)
    }

    fn folder(&self) -> io::Result<&OwnedFd> {
        match &self.place {
            Place::File { folder, .. } => Ok(folder),
            Place::Stream(_) => Err(io::Error::other("a stream has no folder")),
        }
    }
}

/// A new file that does not have its final name yet. It is deleted when this is dropped.
#[derive(Debug)]
pub struct Pending {
    /// Set if it is also deleted when a signal ends the process.
    watch: Option<Watch>,
    file: Option<File>,
    /// Where the file goes; `None` for a stream, which exists already.
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
    /// The file, for writing.
    pub fn file(&self) -> io::Result<&File> {
        self.file
            .as_ref()
            .ok_or_else(|| io::Error::other("the file is closed already"))
    }

    /// The folder in which the file gets its name; `None` for a stream.
    pub fn folder(&self) -> Option<BorrowedFd<'_>> {
        self.target.as_ref().map(|target| target.folder.as_fd())
    }

    /// Deletes the file also if a signal ends the process. For files that take long: the others have their names at once.
    pub fn delete_at_signals(mut self) -> Self {
        if let Some(target) = &self.target
            && let Ok(name) = CString::new(target.temporary.as_bytes())
        {
            self.watch = Watch::begin(target.folder.as_fd(), &name);
        }
        self
    }

    /// Gives the file its final name, and replaces the file that had it.
    pub fn commit(mut self) -> io::Result<File> {
        if let Some(target) = &self.target {
            target.take_name()?;
        }
        self.target = None;
        self.file
            .take()
            .ok_or_else(|| io::Error::other("the file is closed already"))
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
        // Checks once more, because others may be able to write to the folder. A file that another user puts
        // there after this check loses its name, but none of its content is changed.
        match stat_of(&self.folder, &self.name)? {
            Some(found) => {
                check_replaced(self.identity, &self.folder, &found)?;
                self.rename(RenameFlags::empty())
            }
            None => match self.rename(RenameFlags::NOREPLACE) {
                // Some file systems don't support NOREPLACE.
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

/// The file that has this name in a folder, if there is one.
fn stat_of(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn check_replaced(identity: Identity, folder: &OwnedFd, found: &Stat) -> io::Result<()> {
    identity.check_replaced(&rustix::fs::fstat(folder)?, found)
}

/// Whether it is `/dev/null`, `/dev/zero` or `/dev/full`. Writing to these can't harm anyone.
fn is_data_sink(stat: &Stat) -> bool {
    const MEMORY: u32 = 1;
    let (major, minor) = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && major == MEMORY
        && matches!(minor, 3 | 5 | 7)
}

/// Opens a stream for writing. A regular file, as in `heaptrace … -o /dev/stdout > file`, is emptied and made
/// private.
fn stream(handle: &OwnedFd, identity: Identity) -> io::Result<File> {
    let stream = walk::reopen(handle, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = rustix::fs::fstat(&stream)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        identity.check_written(&stat)?;
        rustix::fs::fchmod(&stream, Mode::from_raw_mode(0o600))?;
        identity.give(&stream)?;
        rustix::fs::ftruncate(&stream, 0)?;
    }
    // The stream was opened in non-blocking mode, but a slow reader must not cause write errors.
    rustix::fs::fcntl_setfl(&stream, OFlags::empty())?;
    Ok(stream.into())
}
