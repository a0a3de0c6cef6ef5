//! Tests of the process filter of `--all`: by name, user and control group.
//!
//! Only these tests use the names, so that no other process of the machine is in their reports.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use heaptrace_tests::{
    Child, Group, Heaptrace, NOBODY, Recording, Truth, c, open_to_nobody, run, truths,
};

/// A copy of a fixture under another name.
fn named(here: &Heaptrace, fixture: &str, name: &str) -> Result<PathBuf> {
    let copy = here.path(name);
    run(Command::new("cp").arg(c(fixture)?.path).arg(&copy))?.success()?;
    Ok(copy)
}

/// Starts `record --all` with further options, and waits until it records.
fn recording(here: &Heaptrace, options: &[&str]) -> Result<Child> {
    let mut arguments = vec!["--all", "--from-birth", "--exact"];
    arguments.extend(options);
    let mut tracer = here.start_record(&arguments)?;
    here.wait_recording(&mut tracer)?;
    Ok(tracer)
}

fn stop(here: &Heaptrace, tracer: Child) -> Result<Recording> {
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    anyhow::ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording)
}

fn runs(command: &mut Command) -> Result<Vec<Truth>> {
    truths(&run(command)?.success()?.stdout)
}

/// Fails unless exactly these processes are in the report, each with its own counts.
fn are_all(expected: &[Truth], recording: &Recording) -> Result<()> {
    let mut seen: Vec<u32> = recording.report.processes.iter().map(|p| p.pid).collect();
    let mut pids: Vec<u32> = expected.iter().map(|truth| truth.pid).collect();
    seen.sort_unstable();
    pids.sort_unstable();
    assert_eq!(seen, pids, "{:?}", recording.report.processes);
    for truth in expected {
        truth.matches(&recording.report.truth(Some(truth.pid)))?;
    }
    Ok(())
}

/// Check that exactly the processes with a wanted and no excluded name are recorded, from their first allocation, also
/// if `exec` gives them the name, that names of threads don't count, and that the run says that the others pay, too.
#[test]
fn names_select_processes() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let wanted = named(&here, "threads", "ht-chosen-one")?;
    let excluded = named(&here, "hooks", "ht-chosen-not")?;
    let other = named(&here, "hooks", "ht-other")?;
    let tracer = recording(&here, &["--comm", "ht-cho[a-z]en-*", "--exclude", "*-not"])?;
    let mut expected = runs(&mut Command::new(&wanted))?;
    runs(&mut Command::new(&excluded))?;
    runs(&mut Command::new(&other))?;
    // The shell's name is not wanted, but the name after its `exec` is.
    let becomes = format!("exec {}", wanted.display());
    expected.extend(runs(Command::new("sh").args(["-c", &becomes]))?);
    let recording = stop(&here, tracer)?;
    let said = &recording.ended.stderr;
    assert!(
        said.contains("--comm with --exclude selects what is recorded, not what is probed"),
        "{said}"
    );
    are_all(&expected, &recording)
}

/// Check that `--user` selects processes that start as that user, and processes that change to it without an `exec`.
#[test]
fn users_select_processes() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let changing = named(&here, "forks", "ht-user-forks")?;
    let program = open_to_nobody(here.folder(), &c("hooks")?.path)?;
    let options = ["--user", "nobody", "--comm", "ht-user-*", "--comm", "hooks"];
    let tracer = recording(&here, &options)?;
    let user = format!("--reuid={NOBODY}");
    let mut expected = runs(
        Command::new("setpriv")
            .args([user.as_str(), "--regid=65534", "--clear-groups"])
            .arg(&program),
    )?;
    runs(&mut Command::new(&changing))?;
    expected.extend(runs(Command::new(&changing).arg(NOBODY.to_string()))?);
    assert_eq!(expected.len(), 7);
    are_all(&expected, &stop(&here, tracer)?)
}

fn runs_in(group: &Path, program: &Path) -> Result<Vec<Truth>> {
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec {}",
        group.display(),
        program.display()
    );
    runs(Command::new("sh").args(["-c", &script]))
}

/// Check that `--cgroup` selects the group and those below it, and no other.
#[test]
fn control_groups_select_processes() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let program = named(&here, "hooks", "ht-grouped")?;
    let (group, other) = (Group::unified("chosen")?, Group::unified("other")?);
    let below = group.below("b.scope")?;
    let name = group.name()?;
    let tracer = recording(&here, &["--cgroup", &name, "--exclude", "sh"])?;
    let mut expected = runs_in(group.folder(), &program)?;
    expected.extend(runs_in(&below, &program)?);
    runs_in(other.folder(), &program)?;
    runs(&mut Command::new(&program))?;
    let recording = stop(&here, tracer)?;
    are_all(&expected, &recording)?;
    assert!(
        recording
            .report
            .processes
            .iter()
            .all(|process| process.cgroup.starts_with(&name)),
        "{:?}",
        recording.report.processes
    );
    Ok(())
}

/// Check that a missing control group is refused with its name, before anything is traced.
#[test]
fn a_missing_group_is_refused() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let options = ["record", "--all", "--cgroup", "/no-such.slice"];
    let ended = here.run(&options)?.fails_clearly()?;
    assert!(ended.stderr.contains("/no-such.slice"), "{}", ended.stderr);
    assert!(!here.data().exists());
    Ok(())
}

/// Check that a filter that matches the tracer's name doesn't select the tracer itself.
#[test]
fn the_tracer_is_never_selected() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let tracer = recording(&here, &["--comm", "heaptrace*", "--interval", "50ms"])?;
    // Time is the point: in it, the tracer makes several updates, which allocate.
    std::thread::sleep(std::time::Duration::from_millis(700));
    let pid = tracer.pid();
    tracer.signal(libc::SIGINT)?;
    // Tracers of other tests are traced, and their events may get lost. That doesn't matter here.
    let report = here.finish(tracer)?.report;
    assert!(report.images(pid).is_empty(), "{:?}", report.processes);
    Ok(())
}

/// Check that the kernel accepts the programs with all filters and sampling together. Then their calls nest deepest, and
/// the kernel's stack for them is small.
#[test]
fn all_filters_together_are_accepted() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let filters = [
        "--comm",
        "heaptrace-none",
        "--exclude",
        "*x",
        "--cgroup",
        "/",
        "--user",
        "root",
    ];
    let sample = [
        "--all",
        "--from-birth",
        "--mmap",
        "--sample",
        "64KiB",
        "--min-size",
        "1",
        "-v",
    ];
    let mut tracer = here.start_record(&[&sample[..], &filters].concat())?;
    here.wait_recording(&mut tracer)?;
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    assert_eq!(recording.report.totals.allocations, 0);
    Ok(())
}
