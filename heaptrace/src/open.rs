//! The one place that opens files which a traced process chose, or can put something else in the place of.
//!
//! No stage of the flow; imports none. What is opened is first looked at without opening it (`O_PATH`): only an ordinary
//! file, no longer than files may be, and where it is known which one it has to be, only that one. So no pipe makes
//! us wait, no device is touched, and no path means a file in another root. Knows nothing of what is in files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use heaptrace_common::wire::version_of;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, fstatfs, openat,
    openat2, statx,
};
use thiserror::Error;

/// Longest file that is opened.
const MAX_BYTES: u64 = 16 << 30;

/// File systems whose files show other devices than the kernel has for them: layers and volumes.
const LAYERED: [u32; 3] = [
    0x794c_7630, // overlayfs
    0x9123_683e, // btrfs
    0xca45_1a4e, // bcachefs
];

/// A file is the same file whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

/// A file with the content that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Which file.
    pub file: FileId,
    /// The time of its last change, as [`version_of`] packs it.
    pub version: u64,
}

/// Which file the kernel says that a mapping is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Expected {
    /// Major and minor number of its device, as the kernel has it.
    pub device: (u32, u32),
    /// Its inode.
    pub inode: u64,
}

/// Why a file was not opened.
#[derive(Debug, Error)]
pub enum NotOpened {
    /// A folder, a pipe, a socket or a device.
    #[error("it is no ordinary file")]
    NotOrdinary,
    /// Longer than files may be.
    #[error("it has more than {} GiB", MAX_BYTES >> 30)]
    TooLong,
    /// Another one than the kernel says.
    #[error("another file is there now")]
    Other,
    /// The system's reason.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<rustix::io::Errno> for NotOpened {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.into())
    }
}

impl NotOpened {
    /// Whether the process, or what it had mapped, is gone.
    pub fn is_gone(&self) -> bool {
        let gone = [Some(libc::ENOENT), Some(libc::ESRCH)];
        matches!(self, Self::System(error) if gone.contains(&error.raw_os_error()))
    }
}

/// An open file, an ordinary one.
#[derive(Debug)]
pub struct Opened {
    /// It, to be read from.
    pub file: File,
    /// Which one it is, and its content.
    pub identity: Identity,
}

impl Identity {
    /// Of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            file: FileId {
                device: meta.dev(),
                inode: meta.ino(),
            },
            version: version_of(meta.ctime() as u64, meta.ctime_nsec() as u32),
        })
    }
}

impl FileId {
    /// Identity of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Identity::of(file)?.file)
    }

    /// Whether the kernel means this file, as far as numbers tell: some file systems show other devices than it has.
    pub fn may_be(&self, expected: &Expected) -> bool {
        self.inode == expected.inode
    }
}

impl Expected {
    /// The device as `stat` would tell it.
    pub fn device_id(&self) -> u64 {
        libc::makedev(self.device.0, self.device.1)
    }
}

/// Opens the file that a process has mapped from one address to another: the very one, also where its path is gone or
/// means another file.
pub fn mapped(
    pid: u32,
    start: u64,
    end: u64,
    expected: Option<Expected>,
) -> Result<Opened, NotOpened> {
    let link = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    checked(openat(CWD, link, LOOK, Mode::empty())?, expected)
}

/// Opens a file that was mapped by a process that is gone, by the path that it had, if it is still that one. A path of
/// another root is not found here, or leads to another file.
pub fn left_behind(path: &Path, expected: Expected) -> Result<Opened, NotOpened> {
    // Whoever chose the path must not make us wait: it was mapped just now, so the kernel has all of it in memory.
    let resolve = ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
    let found = openat2(CWD, path, LOOK, Mode::empty(), resolve)?;
    checked(found, Some(expected))
}

/// Opens a file that the user named, or the system's configuration.
pub fn named(path: &Path) -> Result<Opened, NotOpened> {
    checked(openat(CWD, path, LOOK, Mode::empty())?, None)
}

/// A folder that takes the place of `/`.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
}

impl Root {
    /// The root folder of a process.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Self::at(Path::new(&format!("/proc/{pid}/root")))
    }

    /// This process's own.
    pub fn own() -> io::Result<Self> {
        Self::at(Path::new("/"))
    }

    /// A folder.
    pub fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { folder })
    }

    /// Opens a file below it; links lead nowhere else.
    pub fn open(&self, path: &Path) -> Result<Opened, NotOpened> {
        checked(self.look_up(path, LOOK)?, None)
    }

    /// The path of a file below it with all links followed, as this root has it.
    pub fn resolved(&self, path: &Path) -> Option<PathBuf> {
        let found = self.look_up(path, LOOK).ok()?;
        let full = read_descriptor(found.as_fd())?;
        let root = read_descriptor(self.folder.as_fd())?;
        let inside = full.strip_prefix(root).ok()?;
        let is_plain = |part| matches!(part, Component::Normal(_));
        inside
            .components()
            .all(is_plain)
            .then(|| Path::new("/").join(inside))
    }

    fn look_up(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.folder, path, flags, Mode::empty(), resolve)
    }
}

/// Nothing is opened yet: no device is asked, no pipe waits.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens what was only looked at, if it is an ordinary file, and the one that it should be.
fn checked(found: OwnedFd, expected: Option<Expected>) -> Result<Opened, NotOpened> {
    let stat = fstat(&found)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(NotOpened::NotOrdinary);
    }
    if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(NotOpened::TooLong);
    }
    if let Some(expected) = expected
        && !is_that(found.as_fd(), &stat, expected)
    {
        return Err(NotOpened::Other);
    }
    // By the descriptor: what its name leads to by now does not matter. An ordinary file whose user has a lease on it
    // would make us wait for him.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(openat(
        CWD,
        descriptor(found.as_fd()),
        flags,
        Mode::empty(),
    )?);
    let identity = Identity::of(&file)?;
    Ok(Opened { file, identity })
}

fn is_that(found: BorrowedFd<'_>, stat: &rustix::fs::Stat, expected: Expected) -> bool {
    if stat.st_ino != expected.inode {
        return false;
    }
    stat.st_dev == expected.device_id()
        || fstatfs(found).is_ok_and(|it| LAYERED.contains(&(it.f_type as u32)))
        || mounted_device(found) == Some(expected.device)
}

/// The device that the kernel has for the file system that a file was found in.
fn mounted_device(found: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let asked = statx(found, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let mount = asked.stx_mnt_id.to_string();
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let line = mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let line = std::str::from_utf8(line.get(..64).unwrap_or(line)).ok()?;
        let mut words = line.split(' ');
        (words.next() == Some(&mount)).then(|| words.nth(1))?
    })?;
    let (major, minor) = line.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The path by which this process reaches one of its descriptors.
pub fn descriptor(file: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn read_descriptor(file: BorrowedFd<'_>) -> Option<PathBuf> {
    std::fs::read_link(descriptor(file)).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use super::*;

    fn pipe(path: &Path) {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a string that ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }

    /// Check that pipes, folders and devices are refused, and at once.
    #[test]
    fn only_ordinary_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        pipe(&path);
        for path in [path.as_path(), dir.path(), Path::new("/dev/null")] {
            let refused = named(path).map(drop);
            assert!(matches!(refused, Err(NotOpened::NotOrdinary)), "{path:?}");
        }
        let long = File::create(dir.path().join("long")).unwrap();
        long.set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(
            named(&dir.path().join("long")),
            Err(NotOpened::TooLong)
        ));
    }

    /// Check that a file is opened by the path that it had only where it is still that file: not a pipe, not a copy.
    #[test]
    fn only_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let meta = path.metadata().unwrap();
        let expected = Expected {
            device: (libc::major(meta.dev()), libc::minor(meta.dev())),
            inode: meta.ino(),
        };
        assert!(left_behind(&path, expected).is_ok());
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        std::fs::rename(&copy, &path).unwrap();
        assert!(matches!(
            left_behind(&path, expected),
            Err(NotOpened::Other)
        ));
        std::fs::remove_file(&path).unwrap();
        pipe(&path);
        assert!(matches!(
            left_behind(&path, expected),
            Err(NotOpened::NotOrdinary)
        ));
    }

    /// Check that links below a root lead nowhere else.
    #[test]
    fn a_root_is_not_left() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        std::fs::write(root.join("secret"), "inside").unwrap();
        symlink("/secret", root.join("absolute")).unwrap();
        symlink("../secret", root.join("relative")).unwrap();
        symlink("/proc/self/fd/0", root.join("magic")).unwrap();
        let opened = Root::at(&root).unwrap();
        for name in ["absolute", "relative", "/secret", "../../secret"] {
            let file = opened.open(Path::new(name)).unwrap().file;
            assert_eq!(io::read_to_string(file).unwrap(), "inside", "{name}");
        }
        assert_eq!(
            opened.resolved(Path::new("absolute")),
            Some("/secret".into())
        );
        assert!(opened.open(Path::new("magic")).is_err());
    }

    /// Check that the device of a mount is the one that the kernel shows of its mappings.
    #[test]
    fn devices_of_mounts() {
        let file = File::open("/proc/self/exe").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let inode = file.metadata().unwrap().ino().to_string();
        let shown = maps.lines().find_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            (words.get(4) == Some(&inode.as_str())).then(|| words[3].to_owned())
        });
        let (major, minor) = mounted_device(file.as_fd()).unwrap();
        assert_eq!(shown, Some(format!("{major:02x}:{minor:02x}")));
    }
}
