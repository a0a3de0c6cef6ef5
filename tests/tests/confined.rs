//! Tests that commands which read a data file have no rights beyond reading it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use heaptrace_tests::{Heaptrace, MINUTE, Report, c, until};

/// Kills a process on drop, so that a failed test leaves none.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The value of a line of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> Result<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let line = line.with_context(|| format!("no {name} in {text}"))?;
    Ok(line.trim().to_owned())
}

fn make_fifo(path: &Path) -> Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name is a C string.
    ensure!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) } == 0);
    Ok(())
}

/// Opens a FIFO for writing, when another process has opened it for reading.
fn open_fifo(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.write(true);
    let mut probe = options.clone();
    probe.custom_flags(libc::O_NONBLOCK);
    // Kept open: the reader would see the end of the file if no writer were left.
    let mut first = None;
    until("a reader of the FIFO", MINUTE, || {
        first = probe.open(path).ok();
        Ok(first.is_some())
    })?;
    Ok(options.open(path)?)
}

/// Waits until a process is confined by seccomp.
fn wait_confined(pid: u32) -> Result<()> {
    until("seccomp", MINUTE, || Ok(status(pid, "Seccomp")? == "2"))
}

/// Check that every reading command drops capabilities, new privileges, core dumps and system calls before it reads,
/// and works without them.
#[test]
fn reading_commands_have_no_rights() -> Result<()> {
    let here = Heaptrace::tracing()?;
    here.record_all(&["ls", "-l"])?;
    let data = fs::read(here.data())?;
    let fifo = here.path("fifo");
    make_fifo(&fifo)?;
    for words in [
        &["report"] as &[&str],
        &["report", "--format", "json"],
        &["report", "--snapshots"],
        &["timeline", "--from=1ms"],
        &["flamegraph", "--metric=total-bytes", "-o", "out"],
        &["pprof", "-o", "out"],
    ] {
        let mut command = here.command(words)?;
        command.arg(&fifo).stdout(Stdio::piped());
        let mut child = Ended(command.spawn()?);
        let mut writer = open_fifo(&fifo)?;
        // The command waits for the rest of the file.
        let (first, rest) = data.split_at(data.len() / 2);
        writer.write_all(first)?;
        let pid = child.0.id();
        wait_confined(pid).with_context(|| format!("{words:?}"))?;
        ensure!(status(pid, "NoNewPrivs")? == "1", "{words:?}");
        for set in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
            let found = status(pid, set)?;
            ensure!(
                u64::from_str_radix(&found, 16)? == 0,
                "{words:?}: {set} {found}"
            );
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let cores = limits.lines().find(|line| line.starts_with("Max core"));
        let none = cores.is_some_and(|line| line.split_whitespace().nth(4) == Some("0"));
        ensure!(none, "{words:?}: {limits}");
        writer.write_all(rest)?;
        drop(writer);
        let mut shown = Vec::new();
        if let Some(mut stdout) = child.0.stdout.take() {
            std::io::copy(&mut stdout, &mut shown)?;
        }
        ensure!(child.0.wait()?.success(), "{words:?}");
        let out = here.path("out");
        match words[0] {
            "report" | "timeline" => ensure!(shown.len() > 100, "{words:?}"),
            _ => {
                ensure!(out.metadata()?.len() > 100, "{words:?}");
                fs::remove_file(&out)?;
            }
        }
        for entry in fs::read_dir(here.folder())? {
            let name = entry?.file_name();
            ensure!(
                !name.to_string_lossy().ends_with(".tmp"),
                "{name:?} is left"
            );
        }
    }
    Ok(())
}

/// A data file without the names at its end.
fn without_names(data: &[u8]) -> Result<&[u8]> {
    const SYMBOLS: u32 = 3;
    let mut at = 12;
    while let Some(header) = data.get(at..at + 16) {
        let number = |from: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[from + i]));
        if number(0) == SYMBOLS {
            return Ok(&data[..at]);
        }
        at += 16 + number(4) as usize;
    }
    bail!("the file has no names")
}

/// Check that a command that may open no file still shows names that are not in the data file, as after the death of
/// the recorder.
#[test]
fn missing_names_are_looked_up() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let functions = |report: &Report| -> Vec<Option<String>> {
        let frames = report.sites.iter().flat_map(|site| &site.stack);
        frames.map(|frame| frame.function.clone()).collect()
    };
    let recording = here.record_all(&[&c("identity")?.path])?;
    let data = fs::read(here.data())?;
    fs::write(here.data(), without_names(&data)?)?;
    let found = functions(&here.report()?);
    for name in ["before_main", "truth_malloc", "main"] {
        ensure!(found.contains(&Some(name.to_owned())), "{found:?}");
    }
    let named = functions(&recording.report);
    ensure!(found == named, "{found:?}\n{named:?}");
    Ok(())
}

/// Check that if the process that looks up names dies, the report is shown and says that names are missing.
#[test]
fn a_report_survives_its_namer() -> Result<()> {
    let here = Heaptrace::tracing()?;
    here.record_all(&[&c("identity")?.path])?;
    let data = fs::read(here.data())?;
    let fifo = here.path("fifo");
    make_fifo(&fifo)?;
    let mut command = here.command(&["report"])?;
    command.arg(&fifo).stdout(Stdio::piped());
    let mut child = Ended(command.spawn()?);
    let mut writer = open_fifo(&fifo)?;
    let pid = child.0.id();
    wait_confined(pid)?;
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let namer: i32 = children.trim().parse().context(children.clone())?;
    heaptrace_tests::send(namer, libc::SIGKILL)?;
    writer.write_all(without_names(&data)?)?;
    drop(writer);
    let mut shown = String::new();
    if let Some(mut stdout) = child.0.stdout.take() {
        stdout.read_to_string(&mut shown)?;
    }
    ensure!(child.0.wait()?.success());
    ensure!(shown.contains("names could not be looked up"), "{shown}");
    ensure!(shown.contains("in 1,100 blocks"), "{shown}");
    Ok(())
}
