//! Tests of bad input and missing rights, without root: each gives one clear message, and no panic.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Result;
use heaptrace_tests::{Heaptrace, NOBODY, heaptrace, open_to_nobody, run};

const READERS: [&str; 3] = ["report", "flamegraph", "pprof"];

/// Check that every reading command refuses an empty file, and names it.
#[test]
fn an_empty_file_is_refused() -> Result<()> {
    let here = Heaptrace::offline()?;
    fs::write(here.data(), "")?;
    for reader in READERS {
        let ended = here.run(&[reader, "heaptrace.data"])?.fails_clearly()?;
        assert!(ended.stderr.contains("heaptrace.data"), "{}", ended.stderr);
    }
    Ok(())
}

/// Check that every reading command refuses a file that is no data file.
#[test]
fn another_file_is_refused() -> Result<()> {
    let here = Heaptrace::offline()?;
    for bytes in [b"h".to_vec(), vec![0; 100_000], fs::read("/bin/true")?] {
        fs::write(here.data(), bytes)?;
        for reader in READERS {
            let ended = here.run(&[reader, "heaptrace.data"])?.fails_clearly()?;
            assert!(ended.stderr.contains("heaptrace.data"), "{}", ended.stderr);
        }
    }
    Ok(())
}

/// Check that a file of a later format is refused as newer, with the remedy, and not as damaged.
#[test]
fn a_newer_file_is_refused() -> Result<()> {
    let here = Heaptrace::offline()?;
    fs::write(
        here.data(),
        b"\x89HTRACE\n\xff\0\0\0and what only the future knows",
    )?;
    for reader in READERS {
        let ended = here.run(&[reader, "heaptrace.data"])?.fails_clearly()?;
        assert!(ended.stderr.contains("version 255"), "{}", ended.stderr);
        assert!(ended.stderr.contains("newer heaptrace"), "{}", ended.stderr);
    }
    Ok(())
}

/// Check that a missing file is refused with its name and the reason.
#[test]
fn a_missing_file_is_refused() -> Result<()> {
    let here = Heaptrace::offline()?;
    for reader in READERS {
        let ended = here.run(&[reader, "no-such.data"])?.fails_clearly()?;
        assert!(ended.stderr.contains("no-such.data"), "{}", ended.stderr);
        let says_why = ["No such file", "does not exist"]
            .iter()
            .any(|reason| ended.stderr.contains(reason));
        assert!(says_why, "{}", ended.stderr);
    }
    Ok(())
}

/// Check that a folder instead of a data file is refused.
#[test]
fn a_folder_is_refused() -> Result<()> {
    let here = Heaptrace::offline()?;
    fs::create_dir(here.data())?;
    here.run(&["report", "heaptrace.data"])?.fails_clearly()?;
    Ok(())
}

/// Check that wrong arguments end with status 2 and a message, before a file is written.
#[test]
fn wrong_arguments_are_refused() -> Result<()> {
    let here = Heaptrace::offline()?;
    for arguments in [
        &["record", "--pid", "0"] as &[&str],
        &["record", "--pid", "-5"],
        &["record", "--pid", "one"],
        &["record", "--all", "--", "true"],
        &["record", "--pid", "1", "--all"],
        &["record"],
        &["record", "--duration", "never", "--all"],
        &["record", "--ring-size", "much", "--all"],
        &["report", "--format", "no-such-format"],
        &["no-such-command"],
    ] {
        let ended = here.run(arguments)?;
        ended.no_panic()?;
        assert_eq!(ended.code(), 2, "{arguments:?}: {}", ended.stderr);
        assert!(!ended.stderr.is_empty(), "{arguments:?} says nothing");
        assert!(!here.data().exists(), "{arguments:?} wrote a file");
    }
    Ok(())
}

/// Check that a run without rights names the missing capability, and how to get it.
#[test]
fn missing_rights_are_named() -> Result<()> {
    let here = Heaptrace::offline()?;
    let mut commands: Vec<Command> = Vec::new();
    for arguments in [
        &["record", "-o", "/dev/null", "--", "/bin/true"] as &[&str],
        &["record", "-o", "/dev/null", "--all"],
        &["--", "/bin/true"],
    ] {
        // SAFETY: geteuid has no arguments and can't fail.
        let mut command = if unsafe { libc::geteuid() } == 0 {
            let binary = open_to_nobody(here.folder(), heaptrace()?)?;
            let mut command = Command::new(binary);
            command.uid(NOBODY).gid(NOBODY);
            command
        } else {
            Command::new(heaptrace()?)
        };
        command.args(arguments).current_dir("/");
        commands.push(command);
    }
    for mut command in commands {
        let ended = run(&mut command)?;
        ended.no_panic()?;
        assert_ne!(ended.code(), 0, "{command:?} worked without rights");
        assert!(ended.stderr.contains("CAP_"), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("sudo") || ended.stderr.contains("setcap"),
            "no command that grants it: {}",
            ended.stderr
        );
    }
    Ok(())
}

/// Check that `doctor` runs without rights, and reports each item.
#[test]
fn doctor_needs_no_rights() -> Result<()> {
    let here = Heaptrace::offline()?;
    let ended = here.run(&["doctor"])?;
    ended.no_panic()?;
    let text = ended.stdout.to_lowercase();
    for item in ["kernel", "btf", "capabilit", "lockdown"] {
        assert!(text.contains(item), "nothing on {item}:\n{}", ended.stdout);
    }
    Ok(())
}
