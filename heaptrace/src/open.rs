//! The one place that opens files which a traced process selects or can replace.
//!
//! No stage of the flow; imports none. Each file is first checked without opening it (`O_PATH`): it must be a regular file,
//! not too long, and the expected file if one is known. So a pipe can't block the tracer, no device is touched, and a path
//! can't lead into another root. Must not know the content of files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use heaptrace_common::wire::version_of;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, fstatfs, makedev,
    openat, openat2, statx,
};
use rustix::io::Errno;
use thiserror::Error;

/// The longest file that is opened.
const MAX_BYTES: u64 = 16 << 30;

/// File systems with layers or volumes: `stat` shows another device for their files than the kernel's mappings do.
const LAYERED: [u32; 3] = [
    0x794c_7630, // overlayfs
    0x9123_683e, // btrfs
    0xca45_1a4e, // bcachefs
];

/// The identity of a file, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

/// The identity of a file and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The file.
    pub file: FileId,
    /// The time of the file's last change, as [`version_of`] packs it.
    pub version: u64,
}

/// The file of a mapping, as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Expected {
    /// Major and minor number of its device in the kernel.
    pub device: (u32, u32),
    /// Its inode.
    pub inode: u64,
}

/// Why a file was not opened.
#[derive(Debug, Error)]
pub enum NotOpened {
    /// It is a folder, a pipe, a socket or a device.
    #[error("it is not a regular file")]
    NotRegular,
    /// It is longer than the limit.
    #[error("it has more than {} GiB", MAX_BYTES >> 30)]
    TooLong,
    /// It is longer than a file of this kind may be.
    #[error("it has more than {} MiB", .0 >> 20)]
    LongerThan(u64),
    /// It belongs to another user than it may.
    #[error("it belongs to another user (user {0})")]
    Foreign(u32),
    /// It was written before the process started.
    #[error("it is older than the process")]
    Older,
    /// It is not the expected file.
    #[error("another file is at its path now")]
    Replaced,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for NotOpened {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

impl NotOpened {
    /// Whether the process or its mapping no longer exists.
    pub fn is_gone(&self) -> bool {
        let gone = [Some(libc::ENOENT), Some(libc::ESRCH)];
        matches!(self, Self::System(error) if gone.contains(&error.raw_os_error()))
    }
}

/// What must hold of a file that a process has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The users that the process runs as.
    pub by: Vec<u32>,
    /// The most bytes that it may have.
    pub most_bytes: u64,
    /// The second since the Unix epoch from which on it must have been written.
    pub from_second: u64,
}

/// An open regular file.
#[derive(Debug)]
pub struct Opened {
    /// The file, open for reading.
    pub file: File,
    /// The identity of the file and its content.
    pub identity: Identity,
}

impl Identity {
    /// The identity of an open file and its content.
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
    /// The identity of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Identity::of(file)?.file)
    }

    /// Whether this can be the expected file. Only the inodes are compared, because some file systems show other devices
    /// than the kernel has.
    pub fn may_be(&self, expected: &Expected) -> bool {
        self.inode == expected.inode
    }
}

impl Expected {
    /// The device number in the form of `stat`.
    pub fn device_id(&self) -> u64 {
        makedev(self.device.0, self.device.1)
    }
}

/// Opens the file that a process has mapped from one address to another. Works even if the file's path is gone or leads
/// to another file.
pub fn mapped(
    pid: u32,
    start: u64,
    end: u64,
    expected: Option<Expected>,
) -> Result<Opened, NotOpened> {
    let link = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    checked(openat(CWD, link, LOOK, Mode::empty())?, expected)
}

/// Opens a file that an ended process had mapped, by the path of the mapping, if that path still leads to the expected
/// file. A path from another root is not found, or leads to another file.
pub fn left_behind(path: &Path, expected: Expected) -> Result<Opened, NotOpened> {
    // The process that selected the path must not block the tracer. The file was mapped a moment ago, so the kernel has the
    // whole path in its cache.
    let found = open_cached(CWD, path, ResolveFlags::NO_MAGICLINKS)?;
    checked(found, Some(expected))
}

/// Opens a path for a look, without waiting: the kernel must have the whole path in its cache.
fn open_cached(
    folder: impl AsFd,
    path: &Path,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    /// The kernel refuses also while something is mounted, anywhere.
    const TRIES: usize = 20;
    let resolve = resolve | ResolveFlags::CACHED;
    let mut opened = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        opened = openat2(folder.as_fd(), path, LOOK, Mode::empty(), resolve);
        if !matches!(opened, Err(Errno::AGAIN)) {
            break;
        }
    }
    opened
}

/// Whether a path of a process leads to a file that the process mapped; the process may be gone. A relative path begins
/// at its working folder.
pub fn leads_to(pid: u32, path: &Path, expected: Expected) -> bool {
    // The kernel has the path in its cache if the process was started by it, so the process can't block the tracer.
    let (link, resolve) = if path.is_absolute() {
        ("root", ResolveFlags::IN_ROOT)
    } else {
        ("cwd", ResolveFlags::empty())
    };
    let resolve = resolve | ResolveFlags::NO_MAGICLINKS;
    let folder = Root::at(Path::new(&format!("/proc/{pid}/{link}")))
        .or_else(|_| Root::own())
        .map(|root| root.folder);
    let found = folder.and_then(|folder| Ok(open_cached(folder, path, resolve)?));
    found.is_ok_and(|found| is_file(&found, expected))
}

/// Whether the path of a command in this system leads to a file that a process mapped. Only for folders that other users
/// can't change.
pub fn system_path_leads_to(path: &Path, expected: Expected) -> bool {
    let found = openat2(CWD, path, LOOK, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    found.is_ok_and(|found| is_file(&found, expected))
}

/// Opens a file that the user or the system's configuration names.
pub fn named(path: &Path) -> Result<Opened, NotOpened> {
    checked(openat(CWD, path, LOOK, Mode::empty())?, None)
}

/// A folder that is used as `/`.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
}

impl Root {
    /// The root folder of a process.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Self::at(Path::new(&format!("/proc/{pid}/root")))
    }

    /// The root folder of this process.
    pub fn own() -> io::Result<Self> {
        Self::at(Path::new("/"))
    }

    /// A folder at a path.
    pub fn at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { folder })
    }

    /// Opens a file below this root. Links can't lead out of it.
    pub fn open(&self, path: &Path) -> Result<Opened, NotOpened> {
        checked(self.look_up(path, LOOK)?, None)
    }

    /// Opens a file below this root that belongs to a user. Links can't lead out of the root.
    pub fn open_owned(&self, path: &Path, owner: u32) -> Result<Opened, NotOpened> {
        let found = self.look_up(path, LOOK)?;
        let user = fstat(&found)?.st_uid;
        if user != owner {
            return Err(NotOpened::Foreign(user));
        }
        checked(found, None)
    }

    /// Opens a file below this root that a process has written for others. The last part of the path must not be a link: another
    /// user could have made it.
    pub fn open_written(&self, path: &Path, written: &Written) -> Result<Opened, NotOpened> {
        let found = self.look_up(path, LOOK.union(OFlags::NOFOLLOW))?;
        let stat = fstat(&found)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(NotOpened::NotRegular);
        }
        if stat.st_uid != 0 && !written.by.contains(&stat.st_uid) {
            return Err(NotOpened::Foreign(stat.st_uid));
        }
        if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > written.most_bytes {
            return Err(NotOpened::LongerThan(written.most_bytes));
        }
        if u64::try_from(stat.st_mtime).unwrap_or(0) < written.from_second {
            return Err(NotOpened::Older);
        }
        checked(found, None)
    }

    /// The path of a file below this root, relative to the root, with all links resolved.
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

/// Finds a file without opening it: no device is accessed, and a pipe can't block.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens a file that was found, if it is a regular file and the expected one.
fn checked(found: OwnedFd, expected: Option<Expected>) -> Result<Opened, NotOpened> {
    let stat = fstat(&found)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(NotOpened::NotRegular);
    }
    if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(NotOpened::TooLong);
    }
    if let Some(expected) = expected
        && !is_expected(found.as_fd(), &stat, expected)
    {
        return Err(NotOpened::Replaced);
    }
    // By the descriptor, because the path may lead to another file by now. Not blocking, because a process that holds a
    // lease on a regular file could otherwise block the tracer.
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

fn is_file(found: &OwnedFd, expected: Expected) -> bool {
    fstat(found).is_ok_and(|stat| is_expected(found.as_fd(), &stat, expected))
}

fn is_expected(found: BorrowedFd<'_>, stat: &rustix::fs::Stat, expected: Expected) -> bool {
    if stat.st_ino != expected.inode {
        return false;
    }
    stat.st_dev == expected.device_id()
        || fstatfs(found).is_ok_and(|it| LAYERED.contains(&(it.f_type as u32)))
        || mounted_device(found) == Some(expected.device)
}

/// The device number that the kernel has for the file system of a found file.
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

/// The path through which this process can open one of its descriptors.
pub fn descriptor(file: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn read_descriptor(file: BorrowedFd<'_>) -> Option<PathBuf> {
    std::fs::read_link(descriptor(file)).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{major, minor, mkfifoat};

    use super::*;

    fn pipe(path: &Path) {
        mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
    }

    /// Check that pipes, folders, devices and too long files are refused at once.
    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        pipe(&path);
        for path in [path.as_path(), dir.path(), Path::new("/dev/null")] {
            let refused = named(path).map(drop);
            assert!(matches!(refused, Err(NotOpened::NotRegular)), "{path:?}");
        }
        let long = File::create(dir.path().join("long")).unwrap();
        long.set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(
            named(&dir.path().join("long")),
            Err(NotOpened::TooLong)
        ));
    }

    /// Check that the path of a mapping opens only the mapped file: not a copy and not a pipe at the same path.
    #[test]
    fn only_the_expected_file_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let meta = path.metadata().unwrap();
        let expected = Expected {
            device: (major(meta.dev()), minor(meta.dev())),
            inode: meta.ino(),
        };
        assert!(left_behind(&path, expected).is_ok());
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        std::fs::rename(&copy, &path).unwrap();
        assert!(matches!(
            left_behind(&path, expected),
            Err(NotOpened::Replaced)
        ));
        std::fs::remove_file(&path).unwrap();
        pipe(&path);
        assert!(matches!(
            left_behind(&path, expected),
            Err(NotOpened::NotRegular)
        ));
    }

    /// Check that links below a root can't lead out of it, nor to a file of another user than the expected one.
    #[test]
    fn links_stay_below_the_root() {
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
        let user = root.metadata().unwrap().uid();
        assert!(opened.open_owned(Path::new("relative"), user).is_ok());
        let other = opened.open_owned(Path::new("relative"), user + 1);
        assert!(matches!(other, Err(NotOpened::Foreign(found)) if found == user));
    }

    /// Check that a link leads to its file and not to a copy of it, from a folder, and for a process that is gone.
    #[test]
    fn links_lead_to_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "text").unwrap();
        std::fs::copy(&file, dir.path().join("copy")).unwrap();
        symlink("file", &link).unwrap();
        let meta = file.metadata().unwrap();
        let expected = Expected {
            device: (major(meta.dev()), minor(meta.dev())),
            inode: meta.ino(),
        };
        assert!(link.exists() && dir.path().join("copy").exists());
        for pid in [std::process::id(), u32::MAX] {
            assert!(leads_to(pid, &link, expected));
            assert!(leads_to(pid, &file, expected));
            assert!(!leads_to(pid, &dir.path().join("copy"), expected));
            assert!(!leads_to(pid, &dir.path().join("gone"), expected));
            assert!(!leads_to(pid, dir.path(), expected));
        }
        assert!(system_path_leads_to(&link, expected));
        assert!(!system_path_leads_to(&dir.path().join("copy"), expected));
        let own = File::open("/proc/self/exe").unwrap().metadata().unwrap();
        let own = Expected {
            device: (major(own.dev()), minor(own.dev())),
            inode: own.ino(),
        };
        assert!(!leads_to(
            std::process::id(),
            Path::new("/proc/self/exe"),
            own
        ));
    }

    /// Check that the device of a mount is the device that `/proc/self/maps` shows for a mapping of a file on it.
    #[test]
    fn mount_device_is_the_mapping_device() {
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
