//! Runs a built program: beside the oracle, and beside heaptrace.
//!
//! Part of differential. It must not know what is right.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace};

use super::claims::Claims;
use super::seen::Report;
use super::variant::Run;
use super::workshop::Workshop;
use crate::process;

/// A run beside heaptrace.
pub(super) struct Trial {
    pub(super) claims: Claims,
    pub(super) report: Report,
    /// The command.
    pub(super) command: String,
}

/// Runs the program beside the oracle, if it is not static. It fails if the program does.
pub(super) fn alone(workshop: &Workshop, program: &Path, is_static: bool) -> Result<Claims> {
    let out = program.with_file_name("alone.out");
    let mut command = Command::new(program);
    command.env("DIFFERENTIAL_OUT", fresh(&out)?);
    if !is_static {
        command.env("LD_PRELOAD", workshop.oracle());
    }
    heaptrace_tests::run(&mut command)?.success()?;
    read(&out)
}

/// Runs the program with what the run preloads, and without heaptrace. It fails if the program does.
pub(super) fn untraced(workshop: &Workshop, program: &Path, run: &Run) -> Result<Claims> {
    let out = program.with_file_name("untraced.out");
    let mut command = Command::new(program);
    command.env("DIFFERENTIAL_OUT", fresh(&out)?);
    command.envs(workshop.preload(run).map(|it| ("LD_PRELOAD", it)));
    heaptrace_tests::run(&mut command)?.success()?;
    read(&out)
}

/// Runs the program beside heaptrace.
pub(super) fn traced(workshop: &Workshop, program: &Path, run: &Run) -> Result<Trial> {
    let out = fresh(&program.with_file_name("traced.out"))?;
    let data = program.with_file_name("heaptrace.data");
    let here = Heaptrace::offline()?;
    let mut options: Vec<OsString> = Vec::new();
    if run.small_ring {
        options.extend(["--ring-size".into(), "64KiB".into()]);
    }
    // Only the program may get what is preloaded, so `env` is between.
    let mut words: Vec<OsString> = Vec::new();
    if let Some(libraries) = workshop.preload(run) {
        let mut variable = OsString::from("LD_PRELOAD=");
        variable.push(libraries);
        words.extend(["env".into(), variable]);
    }
    words.push(program.into());
    let target = if run.attach {
        let (first, rest) = words.split_first().context("no program")?;
        let mut target = Command::new(first);
        target.args(rest).env("DIFFERENTIAL_OUT", &out);
        let mut target = Child::spawn(target.env("DIFFERENTIAL_GATE", "1"))?;
        let line = target.line()?;
        let pid = line
            .strip_prefix("ready ")
            .context("the program is not ready")?;
        options.extend(["--pid".into(), pid.trim().into()]);
        Some(target)
    } else {
        options.push("--".into());
        options.extend(words.iter().cloned());
        None
    };
    let mut command = here.command(&["record", "--exact", "-o"])?;
    command.arg(here.data()).args(options);
    let described = process::describe(&command);
    let mut tracer = Child::spawn(command.env("DIFFERENTIAL_OUT", &out))?;
    if let Some(mut target) = target {
        here.wait_watching(&mut tracer)?;
        target.go()?;
        let ended = target.wait()?;
        ensure!(
            ended.status.success(),
            "the traced program ended with {}: {}",
            ended.status,
            ended.stderr
        );
    }
    let tracer = tracer.wait()?;
    // Where it can be looked at.
    let _ = fs::copy(here.data(), &data);
    tracer.no_panic()?;
    ensure!(
        tracer.status.success(),
        "heaptrace, or the program below it, ended with {}: {}",
        tracer.status,
        tracer.stderr
    );
    let report = here.run(&[
        "report".as_ref(),
        "--format".as_ref(),
        "json".as_ref(),
        data.as_os_str(),
    ])?;
    Ok(Trial {
        claims: read(&out)?,
        report: Report::parse(&report.success()?.stdout)?,
        command: described,
    })
}

fn fresh(path: &Path) -> Result<PathBuf> {
    fs::write(path, "").with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.to_owned())
}

fn read(path: &Path) -> Result<Claims> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("the program wrote no {}", path.display()))?;
    Claims::parse(&text)
}
