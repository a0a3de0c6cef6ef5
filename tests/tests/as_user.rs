//! Tests of `--as`: the command has the user's identity, and is traced from its first allocation.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, c, open_to_nobody, run};

/// The fixture that prints its user and environment, where every user can run it.
fn identity(here: &Heaptrace) -> Result<PathBuf> {
    open_to_nobody(here.folder(), &c("identity")?.path)
}

/// The line that it prints.
fn said(stdout: &str) -> Result<&str> {
    stdout
        .lines()
        .find_map(|line| line.strip_prefix("identity "))
        .context("the fixture did not print its identity")
}

/// The line that it must print as a user, by the system's own tools.
fn expected(user: &str, folder: &Path) -> Result<String> {
    let id = |option: &str| -> Result<String> {
        let ended = run(Command::new("id").args([option, user]))?.success()?;
        Ok(ended.stdout.trim().to_owned())
    };
    let entry = run(Command::new("getent").args(["passwd", user]))?.success()?;
    let fields: Vec<&str> = entry.stdout.trim().split(':').collect();
    let (uid, gid, groups) = (id("-u")?, id("-g")?, id("-G")?);
    Ok(format!(
        "{uid} {uid} {uid} {gid} {gid} {gid} [{groups}] {user} {user} {} {} - {}",
        fields[5],
        fields[6],
        folder.display()
    ))
}

/// Check that a command runs as the user, with its groups and environment and in the same folder, and that every
/// allocation is counted, also before `main`.
#[test]
fn a_command_runs_as_the_user() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let program = identity(&here)?;
    for user in ["nobody", "daemon"] {
        let recording = here.record(&["--as", user], &[&program])?;
        let ended = &recording.ended;
        ensure!(ended.code() == 0, "{}", ended.stderr);
        ensure!(said(&ended.stdout)? == expected(user, &here.folder().canonicalize()?)?);
        recording.report.check_nothing_lost()?;
        let truth = recording.truth("main")?;
        ensure!(truth.allocations == 1100, "{truth:?}");
        truth.matches(&recording.report.truth(Some(truth.pid)))?;
    }
    Ok(())
}

/// Check that the children of such a command are traced, and that live mode runs a command as the user, too.
#[test]
fn children_and_live_mode_work() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let program = identity(&here)?;
    let shell = format!("{0}; {0}", program.display());
    let recording = here.record(&["--as", "nobody"], &["sh", "-c", &shell])?;
    ensure!(recording.truths.len() == 2);
    for truth in &recording.truths {
        truth.matches(&recording.report.truth(Some(truth.pid)))?;
    }
    let mut command = here.command(&["--as", "nobody", "--"])?;
    let ended = run(command.arg(&program))?.success()?;
    ensure!(said(&ended.stdout)? == expected("nobody", &here.folder().canonicalize()?)?);
    ensure!(ended.stdout.contains("truth_malloc"), "{}", ended.stdout);
    Ok(())
}

/// Check that a command run as root by sudo prints a hint about `--as`, and that no other run does.
#[test]
fn a_hint_names_the_option() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let said = |caller: Option<&str>, words: &[&str]| -> Result<bool> {
        let mut command = here.command(&["record"])?;
        command.args(words);
        if let Some(caller) = caller {
            command.env("SUDO_USER", caller);
        }
        let ended = run(&mut command)?.success()?;
        let lines = ended
            .stderr
            .lines()
            .filter(|line| line.contains("--as alice"));
        let count = lines.count();
        ensure!(count <= 1, "{}", ended.stderr);
        Ok(count == 1)
    };
    ensure!(said(Some("alice"), &["--", "true"])?);
    ensure!(!said(Some("alice"), &["--as", "nobody", "--", "true"])?);
    ensure!(!said(Some("root"), &["--", "true"])?);
    ensure!(!said(None, &["--", "true"])?);
    let pid = std::process::id().to_string();
    ensure!(!said(
        Some("alice"),
        &["--duration", "10ms", "--pid", &pid]
    )?);
    Ok(())
}

/// Check that a missing user, a missing command, and a program that the user may not run are refused.
#[test]
fn impossible_commands_are_refused() -> Result<()> {
    let here = Heaptrace::tracing()?;
    for (words, reason) in [
        (
            &["record", "--as", "no-such-user", "--", "true"] as &[&str],
            "no user",
        ),
        (&["record", "--as", "nobody", "--all"], "--as"),
        (&["record", "--as", "nobody", "--pid", "1"], "--as"),
        (&["--as", "nobody"], "COMMAND"),
    ] {
        let ended = here.run(words)?.exits(2)?;
        ensure!(ended.stderr.contains(reason), "{words:?}: {}", ended.stderr);
    }
    let program = identity(&here)?;
    fs::set_permissions(&program, Permissions::from_mode(0o700))?;
    let mut command = here.command(&["record", "--as", "nobody", "--"])?;
    let ended = run(command.arg(&program))?.exits(126)?;
    ensure!(
        ended.stderr.contains("Permission denied"),
        "{}",
        ended.stderr
    );
    Ok(())
}
