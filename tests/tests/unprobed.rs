//! Tests of files that can't be probed, and of files beyond the limits: named, counted, and without effect on others.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Fixture, Heaptrace, Holdings, MINUTE, NOBODY, Recording, Truth, c, c_hostile,
    definitions, function_offset, open_to_nobody, ready_pid, truths, until,
};

/// Makes the tests of this file run one after the other. Each traces the whole machine, and would see the refused or
/// excessive files of the others.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

/// Starts a `mapper`, and waits until it has mapped the files before `--`.
fn mapper(arguments: &[&OsStr]) -> Result<(Child, u32)> {
    let mut target = Child::spawn(c("mapper")?.command().args(arguments))?;
    let pid = ready_pid(&target.line()?)?;
    Ok((target, pid))
}

/// Starts a run of all processes named `mapper`.
fn start_all(here: &Heaptrace, options: &[&str]) -> Result<Child> {
    let mut arguments = vec![
        "--all",
        "--from-birth",
        "--comm",
        "mapper",
        "--interval",
        "200ms",
    ];
    arguments.extend(options);
    let mut tracer = here.start_record(&arguments)?;
    here.wait_recording(&mut tracer)?;
    Ok(tracer)
}

/// Lets a mapper map the other files, and waits until the report so far fulfils a condition.
fn second_half(
    here: &Heaptrace,
    target: &mut Child,
    is_enough: impl Fn(&heaptrace_tests::Report) -> bool,
) -> Result<()> {
    target.go()?;
    target.line()?;
    let waited = until("the files in the report", MINUTE, || {
        Ok(here.report().is_ok_and(|report| is_enough(&report)))
    });
    waited.with_context(|| format!("{:?}", here.report().map(|report| report.quality.noted)))
}

fn end(here: &Heaptrace, target: Child, tracer: Child) -> Result<(Recording, Truth)> {
    let ended = target.wait()?.success()?;
    tracer.signal(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let truth = truths(&ended.stdout)?.pop().context("no truth")?;
    Ok((recording, truth))
}

fn names(recording: &heaptrace_tests::Report, path: &Path, reason: &str) -> bool {
    let path = path.display().to_string();
    let mut named = recording.quality.unprobed.iter();
    named.any(|it| it.contains(&path) && it.contains(reason))
}

/// Two libraries with an allocator: its `malloc` begins with a breakpoint in one, with a lock prefix in the other.
fn refused() -> Result<[(Fixture, &'static str); 2]> {
    Ok([
        (
            c_hostile("refused", "refused-int3.so", &[r#"-DFIRST="0xcc""#])?,
            "a breakpoint instruction",
        ),
        (
            c_hostile("refused", "refused-lock.so", &[r#"-DFIRST="0xf0""#])?,
            "a lock prefix",
        ),
    ])
}

/// Check that a library whose `malloc` the kernel refuses to probe is named with the reason, and that other allocations
/// are counted exactly. (Once, such a file ended a run with `--all`.)
#[test]
fn refused_files_are_named() -> Result<()> {
    let _alone = alone();
    let libraries = refused()?;
    let paths: Vec<&OsStr> = libraries.iter().map(|(it, _)| it.as_ref()).collect();
    let late: Vec<&OsStr> = [OsStr::new("--")]
        .into_iter()
        .chain(paths.clone())
        .collect();
    for arguments in [paths, late] {
        let here = Heaptrace::tracing()?;
        let (mut target, pid) = mapper(&arguments)?;
        let tracer = start_all(&here, &[])?;
        second_half(&here, &mut target, |report| {
            libraries
                .iter()
                .all(|(it, reason)| names(report, &it.path, reason))
        })?;
        let (recording, truth) = end(&here, target, tracer)?;
        let report = &recording.report;
        report.check_nothing_lost()?;
        truth.matches(&report.truth(Some(pid)))?;
        assert_eq!(
            report.quality.noted["files_refused"], 2,
            "{:?}",
            report.quality
        );
    }
    Ok(())
}

/// Check that such a library, named by `--allocator`, is reported with the reason and doesn't end the run of a command.
#[test]
fn refused_files_end_no_run() -> Result<()> {
    let _alone = alone();
    let here = Heaptrace::tracing()?;
    let [(library, reason), _] = refused()?;
    let allocator = format!("{}", library.path.display());
    let program = c("hooks")?;
    let recording = here.record(&["--allocator", &allocator], &[&program])?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    assert!(names(&recording.report, &library.path, reason));
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(Some(truth.pid)))
}

/// Check that a library with a flipped bit in the first byte of `malloc` is probed or named, and ends no run.
#[test]
fn a_flipped_bit_ends_no_run() -> Result<()> {
    let _alone = alone();
    const BITS: [u8; 3] = [0, 4, 7];
    let here = Heaptrace::tracing()?;
    let sound = fs::read(JEMALLOC).context("libjemalloc-dev is not installed")?;
    let at = usize::try_from(function_offset(&sound, "malloc")?)?;
    let mut copies: Vec<PathBuf> = Vec::new();
    for bit in BITS {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << bit;
        let path = here.path(&format!("libjemalloc-{bit}.so"));
        fs::write(&path, bytes)?;
        copies.push(path);
    }
    let paths: Vec<OsString> = copies.iter().map(|it| it.clone().into()).collect();
    let late: Vec<&OsStr> = paths.iter().map(OsString::as_os_str).collect();
    let arguments: Vec<&OsStr> = [OsStr::new("--")].into_iter().chain(late).collect();
    let (mut target, pid) = mapper(&arguments)?;
    let tracer = start_all(&here, &[])?;
    second_half(&here, &mut target, |report| {
        let noted = |name| report.quality.noted.get(name).copied().unwrap_or_default();
        noted("allocators_probed_late") + noted("files_refused") >= BITS.len() as u64
    })?;
    let (recording, truth) = end(&here, target, tracer)?;
    recording.report.check_nothing_lost()?;
    truth.matches(&recording.report.truth(Some(pid)))
}

/// Check that each of thousands of files that one user maps at once is counted, and that another user's file is still
/// examined. (Once, files beyond the queue were dropped without a count.)
#[test]
fn a_flood_of_files_is_counted() -> Result<()> {
    let _alone = alone();
    const FILES: u64 = 5_000;
    let here = Heaptrace::tracing()?;
    let [(library, _), (sound, reason)] = refused()?;
    let bytes = fs::read(&library.path)?;
    let folder = here.path("many");
    fs::create_dir(&folder)?;
    for n in 0..FILES {
        fs::write(folder.join(n.to_string()), &bytes)?;
    }
    let program = open_to_nobody(here.folder(), &c("mapper")?.path)?;
    let one = open_to_nobody(here.folder(), &sound.path)?;

    let many = format!("{}/", folder.display());
    let (mut flood, pid) = mapper(&[OsStr::new("--"), OsStr::new(&many)])?;
    let mut other = Child::spawn(
        Command::new(&program)
            .args([OsStr::new("--"), one.as_os_str()])
            .uid(NOBODY)
            .gid(NOBODY),
    )?;
    ready_pid(&other.line()?)?;
    let tracer = start_all(&here, &[])?;
    flood.go()?;
    flood.line()?;
    second_half(&here, &mut other, |report| {
        let noted = |name| report.quality.noted.get(name).copied().unwrap_or_default();
        names(report, &one, reason) && noted("files_refused") > 100
    })?;
    other.wait()?.success()?;
    let (recording, truth) = end(&here, flood, tracer)?;
    let quality = &recording.report.quality;
    let noted = |name| quality.noted[name];
    let accounted =
        noted("files_refused") + noted("files_not_looked_into") + noted("files_gone_unseen");
    ensure!(accounted + quality.lost["sideband"] >= FILES, "{quality:?}");
    truth.matches(&recording.report.truth(Some(pid)))
}

/// Check that a library with more functions than a file may have probes is named and not probed, and that a run with
/// very many probes ends within a minute. (Once, it took minutes.)
#[test]
fn probes_have_limits() -> Result<()> {
    let _alone = alone();
    let here = Heaptrace::tracing()?;
    let many = c_hostile("many_hooks", "hooks-250.so", &[])?;
    let few = c_hostile("many_hooks", "hooks-50.so", &["-DHOOKS=50"])?;
    let (mut target, pid) = mapper(&[OsStr::new("--"), many.as_ref(), few.as_ref()])?;
    let tracer = start_all(&here, &[])?;
    let few = few.path.display().to_string();
    second_half(&here, &mut target, |report| {
        names(report, &many.path, "probe locations")
    })?;
    until(&format!("the probes of {few}"), MINUTE, || {
        Ok(definitions(tracer.pid())?.len() >= 150)
    })?;
    let holdings = Holdings::of(tracer.pid())?;
    let begin = Instant::now();
    let (recording, truth) = end(&here, target, tracer)?;
    let took = begin.elapsed();
    println!("detaching took {took:?}");
    ensure!(took < MINUTE, "detaching took {took:?}");
    ensure!(
        recording.ended.stderr.contains("to remove the last"),
        "{}",
        recording.ended.stderr
    );
    truth.matches(&recording.report.truth(Some(pid)))?;
    // Each call waits for a minute. The kernel takes some hundredths of a second for each probe, and many times that on
    // a busy machine.
    (0..5)
        .find_map(|_| holdings.are_gone().ok())
        .map_or_else(|| holdings.are_gone(), Ok)
}
