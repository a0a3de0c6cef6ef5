//! Tests of the reader processes, which parse files of targets: their rights, and a run whose readers fail.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use heaptrace::join::{Location, LocationId, Module, ModuleId};
use heaptrace::profile::{Mode, Profile, RunInfo, SizeRange};
use heaptrace::reader::{self, Budget};
use heaptrace::symbolize::{DebugSources, OnDisk, Symbolizer};
use heaptrace_tests::{Child, Heaptrace, c, ready_pid, send};

/// The text of a process's `status` file.
fn status(pid: u32) -> Result<String> {
    Ok(fs::read_to_string(format!("/proc/{pid}/status"))?)
}

/// The value of a field of a `status` file.
fn field<'s>(status: &'s str, name: &str) -> Result<&'s str> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.with_context(|| format!("no {name}"))?.trim())
}

/// The readers of a tracer.
fn readers(tracer: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let Ok(status) = status(pid) else { continue };
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if field(&status, "PPid")? == tracer.to_string() && line.starts_with(b"heaptrace: reader") {
            found.push(pid);
        }
    }
    Ok(found)
}

/// A fixture that allocates until it gets a line, and a tracer that has attached to it.
fn traced(here: &Heaptrace) -> Result<(Child, Child)> {
    let mut target = Child::spawn(&mut c("forever")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let mut tracer = here.start_record(&["--pid", &pid.to_string()])?;
    here.wait_attached(&mut tracer, pid)?;
    Ok((target, tracer))
}

/// Check that readers run as the user `nobody`, without capabilities, groups or a way to gain them, under seccomp and
/// with bounded memory, and that they have no map, probe or ring of the tracer open.
#[test]
fn readers_have_no_rights() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (target, tracer) = traced(&here)?;
    let readers = readers(tracer.pid())?;
    ensure!(!readers.is_empty(), "there is no reader");
    for pid in readers {
        let status = status(pid)?;
        for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(field(&status, name)?, "0000000000000000", "{name}");
        }
        for (name, expected) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Groups", "")] {
            assert_eq!(field(&status, name)?, expected, "{name}");
        }
        for name in ["Uid", "Gid"] {
            let ids: Vec<_> = field(&status, name)?.split_whitespace().collect();
            assert_eq!(ids, ["65534"; 4], "{name}");
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let data = limits
            .lines()
            .find(|line| line.starts_with("Max data size"));
        let data = data.context("no limit of memory")?;
        ensure!(!data.contains("unlimited"), "{data}");
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let link = fs::read_link(entry?.path())?.display().to_string();
            let is_expected = link.starts_with("socket:")
                || link == "/dev/null"
                || PathBuf::from(&link).is_file()
                || link.contains("memfd:vdso");
            ensure!(is_expected, "a reader has {link}");
        }
        println!(
            "reader {pid}: capabilities {}, seccomp {}, {} of memory",
            field(&status, "CapEff")?,
            field(&status, "Seccomp")?,
            field(&status, "VmRSS")?
        );
    }
    drop(target);
    here.finish(tracer)?;
    Ok(())
}

/// Check that killing readers again and again loses no event and no names.
#[test]
fn a_run_survives_killed_readers() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (mut target, tracer) = traced(&here)?;
    // Time is the point: readers are killed for two seconds.
    let end = Instant::now() + Duration::from_secs(2);
    let mut killed = 0;
    while Instant::now() < end {
        for pid in readers(tracer.pid())? {
            killed += u32::from(send(pid as i32, libc::SIGKILL).is_ok());
        }
        thread::sleep(Duration::from_millis(5));
    }
    ensure!(killed > 0, "there was no reader to kill");
    target.go()?;
    target.wait()?.success()?;
    let recording = here.finish(tracer)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    let sites = recording.report.sites.iter();
    let mut frames = sites.flat_map(|site| &site.stack);
    let has_names = frames.any(|frame| frame.function.as_deref() == Some("truth_malloc"));
    ensure!(has_names, "no names");
    Ok(())
}

/// Check that a reader that is stopped is replaced, that its file is named with the reason, and that the run ends
/// normally.
#[test]
fn a_stopped_reader_is_replaced() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let plugin = here.path("plugin.so");
    fs::copy(heaptrace_tests::c_plugin("plugin")?.path, &plugin)?;
    let mut target = Child::spawn(c("shrinking")?.command().arg(&plugin))?;
    let pid = ready_pid(&target.line()?)?;
    let mut tracer = here.start_record(&["--pid", &pid.to_string()])?;
    here.wait_attached(&mut tracer, pid)?;
    let stopped = readers(tracer.pid())?;
    for pid in &stopped {
        send(*pid as i32, libc::SIGSTOP)?;
    }
    // The last update asks for the plugin's build id, and the reader doesn't answer.
    target.go()?;
    target.wait()?.success()?;
    let recording = here.finish(tracer)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    let unreadable = &recording.report.quality.unreadable;
    ensure!(
        unreadable.iter().any(|it| it.contains("made no progress")),
        "{unreadable:?}, {stopped:?}"
    );
    Ok(())
}

/// Check that a mapped file that is cut short during a lookup of names ends its reader alone, and that the next file's
/// names are found. (Once, a SIGBUS ended the whole run.)
#[test]
fn a_shrinking_file_ends_its_reader_alone() -> Result<()> {
    const TRIES: u64 = 60;
    let here = Heaptrace::tracing()?;
    let program = heaptrace_tests::heaptrace()?;
    reader::served_by(program.to_owned());
    let path = here.path("shrinking");
    let length = fs::metadata(program)?.len();
    for round in 0..TRIES {
        fs::copy(program, &path)?;
        let budget = Budget::default();
        let cutting = path.clone();
        let cut = thread::spawn(move || {
            // Time is the point: each round cuts the file at another moment.
            thread::sleep(Duration::from_millis(5 + 5 * round));
            OpenOptions::new().write(true).open(cutting)?.set_len(8192)
        });
        names(&budget, &path, length);
        cut.join()
            .map_err(|_| anyhow::anyhow!("a thread failed"))??;
        let unread = budget.unread().files;
        if unread.values().any(|why| why.contains("became shorter")) {
            ensure!(names(&Budget::default(), program, length) > 0, "no names");
            return Ok(());
        }
    }
    anyhow::bail!("in {TRIES} rounds, no reader was at the file when it was cut short")
}

/// The number of addresses that have names, of 500 addresses in a file.
fn names(budget: &Budget, path: &Path, length: u64) -> usize {
    const ADDRESSES: u64 = 500;
    let mut profile = Profile::new(RunInfo {
        version: String::new(),
        mode: Mode::Exact,
        sizes: SizeRange::ALL,
        started_unix_ns: 0,
        target: "--all".to_owned(),
        kernel: String::new(),
    });
    profile.modules.push(Module {
        path: path.display().to_string(),
        ..Module::default()
    });
    profile.locations = (0..ADDRESSES)
        .map(|n| Location {
            module: Some(ModuleId(0)),
            address: n * length / 2 / ADDRESSES,
            function: None,
        })
        .collect();
    let mut symbolizer = Symbolizer::new(budget, DebugSources::in_folders(&[]));
    symbolizer.symbolize(
        &profile,
        &OnDisk::default(),
        (0..ADDRESSES as u32).map(LocationId),
    );
    let symbols = symbolizer.into_symbols();
    let frames = symbols.frames.iter().flatten();
    frames.filter(|frame| frame.function.is_some()).count()
}
