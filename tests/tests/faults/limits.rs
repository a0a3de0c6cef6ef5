//! Runs with too few resources: descriptors, address space, memory, disk space, standard streams.

use std::fs;
use std::process::Command;

use anyhow::Result;
use heaptrace_tests::{Ended, Group, Heaptrace, c, heaptrace, run, truths};

use crate::ready;

/// Runs `record` with these arguments from a shell that runs `before` first.
fn limited(here: &Heaptrace, before: &str, arguments: &str) -> Result<Ended> {
    let (binary, data) = (heaptrace()?.display(), here.data());
    let script = format!(
        "{before}; exec {binary} record -o {} {arguments}",
        data.display()
    );
    run(Command::new("sh")
        .args(["-c", &script])
        .current_dir(here.folder()))
}

/// Check that limits that are too low for any run are refused with the limit to raise, for commands and `--all`.
/// (Once, a run said that there was no allocator.)
#[test]
fn limits_that_are_too_low_are_named() -> Result<()> {
    let here = Heaptrace::tracing()?;
    for target in ["-- true", "--all --duration 1s"] {
        for (limit, raise) in [
            ("ulimit -n 64", "ulimit -Hn"),
            ("ulimit -v 65536", "ulimit -v"),
        ] {
            let ended = limited(&here, limit, target)?.fails_clearly()?;
            assert!(ended.stderr.contains(raise), "{limit}: {}", ended.stderr);
        }
    }
    Ok(())
}

/// Check that a run in a control group with too little memory names the option that reduces its memory.
#[test]
fn too_little_memory_is_named() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let group = Group::of_memory("faults", 48 << 20)?;
    let inside = format!("echo $$ > {}/cgroup.procs", group.folder().display());
    let ended = limited(&here, &inside, "-- true")?;
    ended.no_panic()?;
    assert_ne!(ended.code(), 0);
    assert!(ended.stderr.contains("--max-memory"), "{}", ended.stderr);
    Ok(())
}

/// Check that a run with just enough descriptors has exact numbers.
#[test]
fn few_descriptors_are_enough() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let program = c("hooks")?.path;
    let ended = limited(
        &here,
        "ulimit -n 256",
        &format!("--exact -- {}", program.display()),
    )?;
    let ended = ended.success()?;
    let report = here.report()?;
    report.check_nothing_lost()?;
    for truth in truths(&ended.stdout)? {
        truth.matches(&report.truth(Some(truth.pid)))?;
    }
    Ok(())
}

/// Check that a full disk ends a run with a message and a status, and that the target continues.
#[test]
fn a_full_disk_is_reported() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let folder = here.path("small");
    fs::create_dir(&folder)?;
    let (mut target, pid) = ready(&c("forever")?, &[])?;
    let small = folder.display();
    let script = format!(
        "mount -t tmpfs -o size=8k tmpfs {small} && exec {} record --exact --interval 50ms -o {small}/x.data --pid {pid}",
        heaptrace()?.display()
    );
    let ended = run(Command::new("unshare").args(["-m", "sh", "-c", &script]))?.fails_clearly()?;
    assert!(ended.stderr.contains("No space left"), "{}", ended.stderr);
    assert!(ended.stderr.contains("x.data"), "{}", ended.stderr);
    target.go()?;
    assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    Ok(())
}

/// Check that a run works with standard output and error closed.
#[test]
fn closed_streams_do_no_harm() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let ended = limited(&here, "exec >&- 2>&- <&-", "--exact -- true")?.success()?;
    assert!(ended.stderr.is_empty(), "{}", ended.stderr);
    let report = here.report()?;
    report.check_nothing_lost()?;
    assert!(report.totals.allocations > 0 || report.processes.is_empty());
    Ok(())
}
