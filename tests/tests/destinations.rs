//! Tests of output files: a file of the same name is replaced if it belongs to the user, and else refused at once.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use heaptrace_tests::{Heaptrace, NOBODY, run};

/// The first words of every command that writes a file.
const WRITERS: [&[&str]; 3] = [
    &["flamegraph", "--metric=total-bytes"],
    &["pprof"],
    &["record", "-o"],
];

/// A command that writes to a path, with a time limit.
fn writer(here: &Heaptrace, words: &[&str], path: &Path) -> Result<Command> {
    let heaptrace = here.command(&[] as &[&str])?;
    let mut command = Command::new("timeout");
    command.arg("60").arg(heaptrace.get_program());
    command.current_dir(here.folder()).args(words);
    if words[0] != "record" {
        command.arg("heaptrace.data").arg("-o");
    }
    command.arg(path);
    if words[0] == "record" {
        command.args(["--", "true"]);
    }
    Ok(command)
}

fn recorded() -> Result<Heaptrace> {
    let here = Heaptrace::tracing()?;
    here.record_all(&["ls", "-l"])?;
    Ok(here)
}

/// Check that a FIFO as output is refused at once. To open it would wait for a reader, which would then get the data.
#[test]
fn a_fifo_is_refused() -> Result<()> {
    let here = recorded()?;
    let fifo = here.path("fifo");
    run(Command::new("mkfifo").arg("-m666").arg(&fifo))?.success()?;
    chown(&fifo, Some(NOBODY), Some(NOBODY))?;
    for words in WRITERS {
        let ended = run(&mut writer(&here, words, &fifo)?)?.fails_clearly()?;
        ensure!(ended.code() == 1, "{words:?}: {}", ended.stderr);
        ensure!(ended.stderr.contains("is a FIFO"), "{}", ended.stderr);
        ensure!(ended.stderr.contains("-o"), "{}", ended.stderr);
    }
    Ok(())
}

/// Check that in a folder that every user may write, another user's file or link is refused, and the user's own file
/// is replaced.
#[test]
fn files_of_others_are_refused() -> Result<()> {
    let here = recorded()?;
    let shared = here.path("shared");
    fs::create_dir(&shared)?;
    fs::set_permissions(&shared, Permissions::from_mode(0o1777))?;
    let victim = here.path("victim");
    fs::write(&victim, "precious")?;
    let (file, link, own) = (shared.join("file"), shared.join("link"), shared.join("own"));
    fs::write(&file, "theirs")?;
    chown(&file, Some(NOBODY), Some(NOBODY))?;
    symlink(&victim, &link)?;
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY))?;
    for words in WRITERS {
        for path in [&file, &link] {
            let ended = run(&mut writer(&here, words, path)?)?.fails_clearly()?;
            ensure!(ended.stderr.contains("another user"), "{}", ended.stderr);
        }
        run(&mut writer(&here, words, &own)?)?.success()?;
        // It stays a file that heaptrace made.
        fs::write(&own, "older")?;
        run(&mut writer(&here, words, &own)?)?.success()?;
        ensure!(fs::read(&own)? != b"older", "{words:?}");
        ensure!(own.metadata()?.mode() & 0o7777 == 0o600, "{words:?}");
        fs::remove_file(&own)?;
    }
    ensure!(fs::read(&victim)? == b"precious");
    ensure!(fs::read(&file)? == b"theirs");
    Ok(())
}

/// Check that under sudo, root can create and replace a file in the user's folder, also after it dropped its rights.
#[test]
fn a_users_folder_is_written() -> Result<()> {
    let here = recorded()?;
    let theirs = here.path("theirs");
    fs::create_dir(&theirs)?;
    chown(&theirs, Some(NOBODY), Some(NOBODY))?;
    for mode in [0o700, 0o1777] {
        fs::set_permissions(&theirs, Permissions::from_mode(mode))?;
        for words in WRITERS {
            for _ in 0..2 {
                let path = theirs.join("out");
                let mut command = writer(&here, words, &path)?;
                command.env("SUDO_UID", NOBODY.to_string());
                command.env("SUDO_GID", NOBODY.to_string());
                run(&mut command)?.success()?;
                ensure!(path.metadata()?.len() > 0, "{words:?}");
            }
            ensure!(fs::read_dir(&theirs)?.count() == 1, "{words:?}");
        }
    }
    Ok(())
}

/// Check that files written under sudo belong to the invoking user.
#[test]
fn files_belong_to_the_caller_of_sudo() -> Result<()> {
    let here = recorded()?;
    for words in WRITERS {
        let path = here.path("out");
        let mut command = writer(&here, words, &path)?;
        command.env("SUDO_UID", NOBODY.to_string());
        command.env("SUDO_GID", "12");
        run(&mut command)?.success()?;
        let found = path.metadata()?;
        ensure!(
            (found.uid(), found.gid(), found.mode() & 0o7777) == (NOBODY, 12, 0o600),
            "{words:?}: {found:?}"
        );
    }
    Ok(())
}

/// Check that files that the caller has open can be named, such as a shell's redirections.
#[test]
fn open_files_can_be_named() -> Result<()> {
    let here = recorded()?;
    let expected = run(here
        .command(&["flamegraph", "--metric=total-bytes", "-o", "-"])?
        .stdin(std::process::Stdio::null()))?
    .success()?;
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let ended = here
            .run(&["flamegraph", "--metric=total-bytes", "-o", name])?
            .success()?;
        ensure!(ended.stdout == expected.stdout, "{name}");
    }
    Ok(())
}
