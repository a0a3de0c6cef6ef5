//! Tests of what is made, replaced, refused and left alone, with folders that strangers write.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use super::*;

/// A user who is neither of those that these tests run for.
const STRANGER: u32 = 12_345;

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn ours() -> Identity {
    Identity::of(me(), None)
}

/// What a stranger sees: our files are not his, and our folders are open to others.
fn as_stranger() -> Identity {
    Identity::of(STRANGER, None)
}

fn create(path: &Path, identity: Identity) -> io::Result<File> {
    Destination::open_for(path, identity)?.create()
}

fn names(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    names
}

/// Check that a file takes the place of an older one, private, with nothing beside it, and that the older
/// one's content is not touched.
#[test]
fn replaced_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("data"), dir.path().join("other name"));
    fs::write(&path, "older and longer").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    fs::hard_link(&path, &other).unwrap();
    create(&path, ours()).unwrap().write_all(b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs::read(&other).unwrap(), b"older and longer");
    assert_eq!(names(dir.path()), ["data", "other name"]);
}

/// Check that a file that is begun has no name until it is whole, and leaves nothing when it never is.
#[test]
fn whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let destination = Destination::open_for(&path, ours()).unwrap();
    let pending = destination.begin().unwrap();
    assert!(!path.exists());
    drop(pending);
    assert_eq!(names(dir.path()), [""; 0]);
    destination.begin().unwrap().commit().unwrap();
    assert_eq!(names(dir.path()), ["data"]);
}

/// Check that what is no file is refused at once: opening a FIFO whose reader never comes would never end.
#[test]
fn no_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("there");
    let refused = || create(&path, ours()).unwrap_err().to_string();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    assert_eq!(refused(), "it is a FIFO");
    fs::remove_file(&path).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(refused(), "it is a socket");
    drop(listener);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(refused(), "it is a folder");
    for folder in [
        dir.path(),
        Path::new("/"),
        Path::new("."),
        Path::new("a/.."),
    ] {
        assert!(create(folder, ours()).is_err(), "{folder:?}");
    }
    let error = create(Path::new("/dev/tty"), ours()).unwrap_err();
    assert_eq!(error.to_string(), "it is a device");
}

/// Check that one's own link is followed, to a file that is replaced, and stays; and that a chain of links
/// that never ends is an error.
#[test]
fn own_links() {
    let dir = tempfile::tempdir().unwrap();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    symlink("target", &link).unwrap();
    create(&link, ours()).unwrap().write_all(b"new").unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read(&target).unwrap(), b"new");

    let endless = dir.path().join("endless");
    symlink("endless", &endless).unwrap();
    let error = create(&endless, ours()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
}

/// Check that a stranger's link is not followed where others may write, neither at the end of a path nor on
/// the way, nor its target touched.
#[test]
fn strange_links() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, target) = (dir.path().join("shared"), dir.path().join("target"));
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(&target).unwrap();
    fs::write(target.join("file"), "precious").unwrap();
    let (file, folder) = (shared.join("file"), shared.join("folder"));
    symlink(target.join("file"), &file).unwrap();
    symlink(&target, &folder).unwrap();
    // Root's links are everybody's, so these have to be given away, which only root can.
    let identity = if me() == 0 {
        for link in [&file, &folder] {
            std::os::unix::fs::lchown(link, Some(STRANGER), None).unwrap();
        }
        ours()
    } else {
        as_stranger()
    };
    for path in [&file, &folder.join("file"), &folder.join("new")] {
        let error = create(path, identity).unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
    }
    assert_eq!(names(&target), ["file"]);
    assert_eq!(fs::read(target.join("file")).unwrap(), b"precious");
}

/// Check that a link of root's is not followed if others can write to its folder: any user can put a hard link to one
/// there. In root's own folder it is followed.
#[test]
fn root_links_are_followed_only_in_closed_folders() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("link");
    symlink("target", &path).unwrap();
    let mut folder = rustix::fs::stat(dir.path()).unwrap();
    let mut link = rustix::fs::lstat(&path).unwrap();
    (folder.st_uid, link.st_uid) = (0, 0);
    let root = Identity::of(0, None);
    let sudo = Identity::of(0, Some((STRANGER, STRANGER)));
    let user = Identity::of(STRANGER, None);
    for identity in [root, sudo, user] {
        for mode in [0o1777, 0o777, 0o775] {
            folder.st_mode = folder.st_mode & !0o7777 | mode;
            let error = identity.check_link(&folder, &link).unwrap_err();
            assert!(error.to_string().contains("another user"), "{error}");
        }
        folder.st_mode = folder.st_mode & !0o7777 | 0o755;
        identity.check_link(&folder, &link).unwrap();
    }
    // A user's own link in a folder of the user's group.
    link.st_uid = STRANGER;
    folder.st_mode = folder.st_mode & !0o7777 | 0o775;
    for identity in [sudo, user] {
        identity.check_link(&folder, &link).unwrap();
    }
}

/// Check that a link that takes the place of the file after it was looked at is refused, and that a folder
/// that takes the place of the held one gets nothing.
#[test]
fn swapped_after_the_look() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, victim) = (dir.path().join("shared"), dir.path().join("victim"));
    fs::create_dir(&shared).unwrap();
    fs::create_dir(&victim).unwrap();
    let path = shared.join("data");
    fs::write(&path, "ours").unwrap();
    fs::write(victim.join("data"), "precious").unwrap();

    let destination = Destination::open_for(&path, ours()).unwrap();
    let pending = destination.begin().unwrap();
    pending.file().unwrap().write_all(b"secret").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(victim.join("data"), &path).unwrap();
    assert!(pending.commit().is_err());

    fs::remove_file(&path).unwrap();
    let moved = dir.path().join("moved");
    fs::rename(&shared, &moved).unwrap();
    symlink(&victim, &shared).unwrap();
    destination.create().unwrap().write_all(b"secret").unwrap();
    assert_eq!(fs::read(moved.join("data")).unwrap(), b"secret");
    assert_eq!(names(&victim), ["data"]);
    assert_eq!(fs::read(victim.join("data")).unwrap(), b"precious");
}

/// Check that another user's file is replaced only in a folder that nobody else writes.
#[test]
fn files_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    fs::write(&path, "theirs").unwrap();
    // Our file and our folder, seen by somebody else: by one who is not root, root's files and folders.
    let error = create(&path, as_stranger());
    if me() == 0 {
        // The folder is root's own, and so closed to all whom root has to fear.
        error.unwrap();
    } else {
        error.unwrap_err();
    }
    fs::write(&path, "theirs").unwrap();
    for mode in [0o1777, 0o777, 0o775] {
        fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        let error = create(&path, as_stranger()).unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
        // The same file, for whom it belongs to.
        Destination::open_for(&path, Identity::of(STRANGER, Some((me(), 0)))).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
}

/// Check that what is made under sudo belongs to the user who called it, with the group.
#[test]
fn given_to_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let (uid, gid) = if me() == 0 {
        (STRANGER, STRANGER + 1)
    } else {
        (me(), rustix::process::getegid().as_raw())
    };
    create(&path, Identity::of(me(), Some((uid, gid)))).unwrap();
    let found = path.metadata().unwrap();
    assert_eq!((found.uid(), found.gid()), (uid, gid));
    assert_eq!(found.mode() & 0o7777, 0o600);
}

/// Check that devices that take anything are left as they are, and that one that is full says so.
#[test]
fn devices() {
    let before = Path::new("/dev/null").metadata().unwrap();
    create(Path::new("/dev/null"), ours())
        .unwrap()
        .write_all(b"x")
        .unwrap();
    let after = Path::new("/dev/null").metadata().unwrap();
    assert_eq!(before.mode(), after.mode());
    assert_eq!(before.uid(), after.uid());
    let error = create(Path::new("/dev/full"), ours())
        .unwrap()
        .write_all(b"x")
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

/// Check that what this process has open can be named: a pipe, as in a shell's `>(…)`, and a file.
#[test]
fn open_files() {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    let (mut reader, writer) = io::pipe().unwrap();
    let named = format!("/dev/fd/{}", writer.as_raw_fd());
    create(Path::new(&named), ours())
        .unwrap()
        .write_all(b"through")
        .unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through");

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let file = File::create(&path).unwrap();
    let named = format!("/proc/self/fd/{}", file.as_raw_fd());
    let destination = Destination::open_for(Path::new(&named), ours()).unwrap();
    assert_eq!(destination.name(), None);
    destination.create().unwrap().write_all(b"x").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"x");
    assert_eq!(names(dir.path()), ["out"]);
}
