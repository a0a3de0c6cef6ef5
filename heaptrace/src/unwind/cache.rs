//! Tables kept on disk, for the next run: one file each, named by the fingerprint of what it was made
//! from.
//!
//! Stage: unwind. What stands on disk is never believed: a folder that others can write to is not used, and a
//! file is checked as if anybody had written it. It is never missed either: whatever goes wrong, a table is
//! made anew.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::cache_format;
use super::image::Fingerprint;
use super::table::{Limits, Table};

/// What takes less time to make is not kept. To read and check a table takes a fifth of the time that making
/// it does for libc, and a fifteenth for LLVM (the test `kept_tables_come_sooner` prints it); of what is made
/// at once, nobody would notice.
const WORTH: Duration = Duration::from_millis(2);

/// Most bytes of the folder; beyond, what was not used for longest goes.
const MAX_BYTES: u64 = 256 << 20;

/// How the files' names end.
const EXTENSION: &str = ".table";

/// The folder with the tables.
#[derive(Debug)]
pub(super) struct Cache {
    /// The folder itself, whatever becomes of its path.
    folder: File,
    max_bytes: u64,
}

/// Where tables are kept unless the user says otherwise: for root, in a place that no other user has a hand
/// in, whatever the environment says.
pub fn default_folder() -> Option<PathBuf> {
    // SAFETY: a plain system call.
    if unsafe { libc::geteuid() } == 0 {
        return Some(PathBuf::from("/var/cache/heaptrace"));
    }
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|folder| folder.join("heaptrace"))
}

impl Cache {
    /// Opens a folder, and makes it where there is none.
    pub(super) fn open(path: &Path) -> Option<Self> {
        Self::with(path, MAX_BYTES)
    }

    pub(super) fn with(path: &Path, max_bytes: u64) -> Option<Self> {
        match open_folder(path) {
            Ok(folder) => Some(Self { folder, max_bytes }),
            Err(error) => {
                tracing::debug!("no tables are kept in {}: {error}", path.display());
                None
            }
        }
    }

    /// The table that was made from this. One that is damaged is deleted.
    pub(super) fn read(&self, fingerprint: &Fingerprint) -> Option<Table> {
        let path = self.path(&name(fingerprint));
        let bytes = match read_private(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::debug!("{}: {error}", name(fingerprint));
                let _ = fs::remove_file(&path);
                return None;
            }
        };
        let table = cache_format::decode(&bytes, fingerprint);
        if table.is_none() {
            tracing::debug!("{}: damaged", name(fingerprint));
            let _ = fs::remove_file(&path);
        } else {
            // By this time it is known which ones are used.
            let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
        table
    }

    /// Keeps a table that took so long to make, if that is worth it.
    pub(super) fn keep(&self, fingerprint: &Fingerprint, table: &Table, took: Duration) {
        if took < WORTH {
            return;
        }
        if let Err(error) = self.write(fingerprint, table) {
            tracing::debug!("a table is not kept: {error}");
        }
    }

    fn write(&self, fingerprint: &Fingerprint, table: &Table) -> io::Result<()> {
        let bytes = cache_format::encode(table, fingerprint);
        self.make_room(bytes.len() as u64)?;
        let temporary = self.path(&format!(".{}-{}", std::process::id(), name(fingerprint)));
        // What a process of this number left behind when it was killed.
        let _ = fs::remove_file(&temporary);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(&bytes))
            .and_then(|()| fs::rename(&temporary, self.path(&name(fingerprint))));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Deletes what was not used for longest, so that so many bytes find room.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut files = Vec::new();
        let mut sum = bytes;
        for entry in fs::read_dir(self.path("."))? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.is_file() && entry.file_name().to_string_lossy().ends_with(EXTENSION) {
                sum = sum.saturating_add(meta.len());
                files.push((meta.modified()?, meta.len(), entry.file_name()));
            }
        }
        files.sort();
        for (_, len, name) in files {
            if sum <= self.max_bytes {
                break;
            }
            fs::remove_file(self.path(&name.to_string_lossy()))?;
            sum -= len;
        }
        if sum > self.max_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// The path of a file in the folder that was opened, which no link can lead elsewhere.
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()))
    }
}

/// Opens a folder that belongs to this user alone.
fn open_folder(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)?;
    let meta = folder.metadata()?;
    // SAFETY: a plain system call.
    let user = unsafe { libc::geteuid() };
    if meta.uid() != user {
        return Err(io::Error::other("it belongs to another user"));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(io::Error::other("others can write to it"));
    }
    Ok(folder)
}

/// Reads a file, no longer than a table can be, and not through a link.
fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let meta = file.metadata()?;
    let longest = cache_format::longest(&Limits::default());
    if !meta.is_file() || meta.len() > longest {
        return Err(io::Error::other("it is no table"));
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    file.take(longest).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn name(fingerprint: &Fingerprint) -> String {
    let digits: String = fingerprint.iter().map(|it| format!("{it:02x}")).collect();
    digits + EXTENSION
}
