//! The cache of tables on disk: one file for each table, named by the fingerprint of its unwind information.
//!
//! Stage: unwind. Entries are untrusted: a folder that other users can write to is not used, and each entry is checked as if
//! another user had written it. No error of the cache is fatal: the table is then built anew.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::process::geteuid;

use super::cache_format;
use super::image::Fingerprint;
use super::table::{Limits, Table};

/// A table that takes less time to build is not cached. To read and check an entry takes a fifth of the build time for libc,
/// and a fifteenth for LLVM (the test `kept_tables_come_sooner` prints both). For a short build, a user would not notice.
const MIN_BUILD_TIME: Duration = Duration::from_millis(2);

/// Most bytes of all entries. Beyond this, the least recently used entries are deleted.
const MAX_BYTES: u64 = 256 << 20;

/// The end of the name of each entry.
const EXTENSION: &str = ".table";

/// The folder with the entries.
#[derive(Debug)]
pub(super) struct Cache {
    /// The open folder, so that a change of its path has no effect.
    folder: File,
    max_bytes: u64,
}

/// The default folder of the cache. For root, a folder that no other user can write to, independent of the environment.
pub fn default_folder() -> Option<PathBuf> {
    if geteuid().is_root() {
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
    /// Opens a folder, and creates it if it does not exist.
    pub(super) fn open(path: &Path) -> Option<Self> {
        Self::with(path, MAX_BYTES)
    }

    pub(super) fn with(path: &Path, max_bytes: u64) -> Option<Self> {
        match open_folder(path) {
            Ok(folder) => Some(Self { folder, max_bytes }),
            Err(error) => {
                tracing::debug!("can't use {} as table cache: {error}", path.display());
                None
            }
        }
    }

    /// Reads the entry with this fingerprint. A damaged entry is deleted.
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
            // The time of modification tells which entries were used recently.
            let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
        table
    }

    /// Adds an entry for a table, if its build took long enough.
    pub(super) fn store(&self, fingerprint: &Fingerprint, table: &Table, build_time: Duration) {
        if build_time < MIN_BUILD_TIME {
            return;
        }
        if let Err(error) = self.write(fingerprint, table) {
            tracing::debug!("can't write an unwind table to the cache: {error}");
        }
    }

    fn write(&self, fingerprint: &Fingerprint, table: &Table) -> io::Result<()> {
        let bytes = cache_format::encode(table, fingerprint);
        self.make_room(bytes.len() as u64)?;
        let temporary = self.path(&format!(".{}-{}", std::process::id(), name(fingerprint)));
        // An earlier process with this pid may have left it behind when it was killed.
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

    /// Deletes the least recently used entries until there is room for this many bytes.
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

    /// The path of an entry, by the folder's descriptor, so that no link in the folder's path is followed.
    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()))
    }
}

/// Opens a folder that belongs to this user, and that no other user can write to.
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
    if meta.uid() != geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(io::Error::other("others can write to it"));
    }
    Ok(folder)
}

/// Reads a file that is not longer than a table can be. Does not follow a link.
fn read_private(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let meta = file.metadata()?;
    let max_bytes = cache_format::max_bytes(&Limits::default());
    if !meta.is_file() || meta.len() > max_bytes {
        return Err(io::Error::other("it is not a cached table"));
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    file.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn name(fingerprint: &Fingerprint) -> String {
    let digits: String = fingerprint.iter().map(|it| format!("{it:02x}")).collect();
    digits + EXTENSION
}
