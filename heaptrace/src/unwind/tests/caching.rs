//! The cache of tables on disk, also with damaged and malicious content.
//!
//! Stage: unwind.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::unwind::cache::Cache;
use crate::unwind::image::Image;
use crate::unwind::{Limits, Table, build};

const LONG: Duration = Duration::from_secs(1);

fn table() -> Table {
    let data = fs::read("/proc/self/exe").unwrap();
    build(data.as_slice(), &Limits::default()).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Check that a table with a long build time is cached, that one with a short build time is not, and that only this user can
/// read and write the folder.
#[test]
fn only_slow_tables_are_cached() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b");
    let cache = Cache::open(&path).unwrap();
    let table = table();
    cache.store(&[1; 32], &table, LONG);
    cache.store(&[2; 32], &table, Duration::from_millis(1));
    assert_eq!(cache.read(&[1; 32]), Some(table));
    assert_eq!(cache.read(&[2; 32]), None);
    assert_eq!(files(&path).len(), 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&files(&path)[0])), (0o700, 0o600));
    assert!(Cache::open(&path).unwrap().read(&[1; 32]).is_some());
}

/// Check that a damaged entry is deleted, that a link is not followed, and that a folder with an entry's name does no harm.
#[test]
fn invalid_entries_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let cache = Cache::open(&path).unwrap();
    let table = table();
    cache.store(&[1; 32], &table, LONG);
    let file = files(&path).remove(0);
    let whole = fs::read(&file).unwrap();

    let mut bytes = whole.clone();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(cache.read(&[1; 32]), None);
    assert!(!file.exists());

    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, &whole).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert_eq!(cache.read(&[1; 32]), None);
    assert!(!file.exists() && elsewhere.exists());

    fs::create_dir(&file).unwrap();
    assert_eq!(cache.read(&[1; 32]), None);
    cache.store(&[1; 32], &table, LONG);
    assert_eq!(files(&path), [file]);
}

/// Check that a folder is not used if it is a link or if others can write to it.
#[test]
fn shared_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("own")).unwrap();
    assert!(Cache::open(&path("own")).is_some());
    symlink(path("own"), path("link")).unwrap();
    assert!(Cache::open(&path("link")).is_none());
    for mode in [0o770, 0o702, 0o777] {
        fs::set_permissions(path("own"), Permissions::from_mode(mode)).unwrap();
        assert!(Cache::open(&path("own")).is_none(), "{mode:o}");
    }
    fs::write(path("file"), "").unwrap();
    assert!(Cache::open(&path("file")).is_none());
    assert!(Cache::open(&path("file/below")).is_none());
}

/// Check that the cache stays below its size limit, and that the least recently used entry is deleted first.
#[test]
fn the_least_recently_used_entry_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let table = table();
    Cache::open(folder.path())
        .unwrap()
        .store(&[0; 32], &table, LONG);
    let size = fs::metadata(&files(folder.path())[0]).unwrap().len();
    let cache = Cache::with(folder.path(), 3 * size).unwrap();
    let age = |at: usize, hours: u64| {
        let file = fs::File::open(&files(folder.path())[at]).unwrap();
        let time = SystemTime::now() - Duration::from_secs(3600 * hours);
        file.set_modified(time).unwrap();
    };
    for number in 1..3 {
        cache.store(&[number; 32], &table, LONG);
    }
    for (at, hours) in [(0, 3), (1, 2), (2, 1)] {
        age(at, hours);
    }
    assert!(cache.read(&[0; 32]).is_some());
    cache.store(&[3; 32], &table, LONG);
    let there = [0, 1, 2, 3].map(|number| cache.read(&[number; 32]).is_some());
    assert_eq!(there, [true, false, true, true]);
    let tiny = Cache::with(folder.path(), size / 2).unwrap();
    tiny.store(&[4; 32], &table, LONG);
    assert_eq!(tiny.read(&[4; 32]), None);
}

/// Check that a cached table is read faster than it is built, and print both times. The cache is useful only if this holds.
#[test]
fn kept_tables_come_sooner() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path()).unwrap();
    let limits = Limits::default();
    let mut paths = vec![PathBuf::from("/proc/self/exe")];
    let libraries = Path::new("/usr/lib/x86_64-linux-gnu");
    paths.push(libraries.join("libc.so.6"));
    // Without optimization it takes minutes.
    if !cfg!(debug_assertions) {
        paths.push(libraries.join("libLLVM-14.so.1"));
    }
    for path in paths {
        let Ok(data) = fs::read(&path) else { continue };
        let timed = |work: &mut dyn FnMut()| {
            let begin = Instant::now();
            work();
            begin.elapsed()
        };
        let best = |work: &mut dyn FnMut()| (0..5).map(|_| timed(work)).min().unwrap();
        let image = Image::read(data.as_slice(), limits.section_bytes).unwrap();
        let mut fingerprint = [0; 32];
        let hashing = best(&mut || fingerprint = image.fingerprint(&limits));
        let mut made = Table::default();
        let making = best(&mut || made = build(data.as_slice(), &limits).unwrap());
        let keeping = best(&mut || cache.store(&fingerprint, &made, LONG));
        let mut found = None;
        let reading = best(&mut || found = cache.read(&fingerprint));
        assert_eq!(found.as_ref(), Some(&made));
        println!(
            "{}: {} rows; fingerprint {hashing:?}, made in {making:?}, written in {keeping:?}, read in {reading:?}",
            path.display(),
            made.rows.len()
        );
        assert!(reading < making, "{reading:?} {making:?}");
    }
}
