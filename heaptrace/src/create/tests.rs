//! Tests of files that are made, replaced or refused, in folders that other users can write to.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use super::*;

/// A user id that these tests never run as.
const OTHER_USER: u32 = 12_345;

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn ours() -> Identity {
    Identity::of(me(), None)
}

/// Another user's point of view: our files are foreign, and others can write to our folders.
fn as_other_user() -> Identity {
    Identity::of(OTHER_USER, None)
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

/// Check that a new file replaces an older one, is private, leaves no other file behind, and does not change
/// the older file's content.
#[test]
fn a_file_is_replaced_and_private() {
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

/// Check that a begun file has no name until it is complete, and that nothing remains if it is never
/// completed.
#[test]
fn an_incomplete_file_is_never_visible() {
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

/// Check that FIFOs, sockets, folders and devices are refused at once. To open a FIFO without a reader would
/// block forever.
#[test]
fn special_files_are_refused() {
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

/// Check that an own link is followed and kept while its target is replaced, and that an endless chain of
/// links is an error.
#[test]
fn own_links_are_followed() {
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

/// Check that another user's link in a shared folder is not followed, neither at the end of a path nor inside
/// it, and that its target stays unchanged.
#[test]
fn links_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, target) = (dir.path().join("shared"), dir.path().join("target"));
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(&target).unwrap();
    fs::write(target.join("file"), "precious").unwrap();
    let (file, folder) = (shared.join("file"), shared.join("folder"));
    symlink(target.join("file"), &file).unwrap();
    symlink(&target, &folder).unwrap();
    // As root, the links are given to another user.
    let identity = if me() == 0 {
        for link in [&file, &folder] {
            std::os::unix::fs::lchown(link, Some(OTHER_USER), None).unwrap();
        }
        ours()
    } else {
        as_other_user()
    };
    for path in [&file, &folder.join("file"), &folder.join("new")] {
        let error = create(path, identity).unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
    }
    assert_eq!(names(&target), ["file"]);
    assert_eq!(fs::read(target.join("file")).unwrap(), b"precious");
}

/// Check that a link of root is refused if others can write to its folder, because any user can make a hard
/// link to it there, and that it is followed in root's own folder.
#[test]
fn root_links_are_followed_only_in_closed_folders() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("link");
    symlink("target", &path).unwrap();
    let mut folder = rustix::fs::stat(dir.path()).unwrap();
    let mut link = rustix::fs::lstat(&path).unwrap();
    (folder.st_uid, link.st_uid) = (0, 0);
    let root = Identity::of(0, None);
    let sudo = Identity::of(0, Some((OTHER_USER, OTHER_USER)));
    let user = Identity::of(OTHER_USER, None);
    for identity in [root, sudo, user] {
        for mode in [0o1777, 0o777, 0o775] {
            folder.st_mode = folder.st_mode & !0o7777 | mode;
            let error = identity.check_link(&folder, &link).unwrap_err();
            assert!(error.to_string().contains("another user"), "{error}");
        }
        folder.st_mode = folder.st_mode & !0o7777 | 0o755;
        identity.check_link(&folder, &link).unwrap();
    }
    // A user's own link in a folder that the user's group can write to.
    link.st_uid = OTHER_USER;
    folder.st_mode = folder.st_mode & !0o7777 | 0o775;
    for identity in [sudo, user] {
        identity.check_link(&folder, &link).unwrap();
    }
}

/// Check that a link that replaces the file after the first check is refused, and that nothing is written to
/// a folder that replaces the opened one.
#[test]
fn files_swapped_after_the_check() {
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

/// Check that another user's file is replaced only in a folder that no other user can write to.
#[test]
fn files_of_others_are_replaced_only_in_closed_folders() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    fs::write(&path, "theirs").unwrap();
    // Our file in our folder, checked for another user. As root, the file and the folder belong to root.
    let error = create(&path, as_other_user());
    if me() == 0 {
        // The folder belongs to root, so no other user can have changed it.
        error.unwrap();
    } else {
        error.unwrap_err();
    }
    fs::write(&path, "theirs").unwrap();
    for mode in [0o1777, 0o777, 0o775] {
        fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        let error = create(&path, as_other_user()).unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
        // The same file, checked for the user that owns it.
        Destination::open_for(&path, Identity::of(OTHER_USER, Some((me(), 0)))).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
}

/// Check that a file made under sudo belongs to the user and the group that called sudo.
#[test]
fn files_belong_to_the_caller_of_sudo() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let (uid, gid) = if me() == 0 {
        (OTHER_USER, OTHER_USER + 1)
    } else {
        (me(), rustix::process::getegid().as_raw())
    };
    create(&path, Identity::of(me(), Some((uid, gid)))).unwrap();
    let found = path.metadata().unwrap();
    assert_eq!((found.uid(), found.gid()), (uid, gid));
    assert_eq!(found.mode() & 0o7777, 0o600);
}

/// Check that devices that accept any data are not changed, and that a full device reports an error.
#[test]
fn devices_are_streams() {
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

/// Check that an open pipe, as in a shell's `>(…)`, and an open file can be named as outputs.
#[test]
fn open_files_are_streams() {
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

/// Check that no unfinished file is left if a signal ends the process, and that the signal does end it. The test runs itself as that
/// process.
#[test]
fn signals_leave_no_unfinished_file() {
    const FOLDER: &str = "HEAPTRACE_TEST_UNFINISHED";
    const NAME: &str = "create::tests::signals_leave_no_unfinished_file";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let path = Path::new(&folder).join("out");
        let pending = Destination::open(&path).unwrap().begin().unwrap();
        let _pending = pending.delete_at_signals();
        assert_eq!(names(Path::new(&folder)).len(), 1);
        // SAFETY: a plain system call.
        unsafe { libc::raise(libc::SIGTERM) };
        unreachable!("the signal did not end the process");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", NAME]).env(FOLDER, dir.path());
    let ended = command.output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGTERM), "{ended:?}");
    assert_eq!(names(dir.path()), Vec::<OsString>::new());
}
