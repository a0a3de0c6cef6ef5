//! Hostile runtimes: files with names of generated code, a Python that overwrites itself, and a false Java virtual machine.
//!
//! Part of hostile.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::suite::{CaseRun, first_line};
use crate::process;

/// Builds the hostile runtimes, with further arguments for the compiler.
fn build(case: &CaseRun<'_>, name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let source = case.file("languages.c");
    fs::write(&source, include_str!("languages.c"))?;
    let program = case.file(name);
    let mut command = Command::new("cc");
    command.args(["-O1", "-g", "-w"]).args(arguments);
    command.arg("-o").arg(&program).arg(&source);
    process::run(&mut command)?;
    Ok(program)
}

/// Records a command, which says how many allocations it made: all of them are seen.
fn seen(case: &CaseRun<'_>, command: &[&OsStr]) -> Result<String> {
    let mut arguments: Vec<OsString> = vec!["record".into(), "-o".into(), case.data().into()];
    arguments.push("--".into());
    arguments.extend(command.iter().map(OsString::from));
    let ended = case.run(&arguments)?;
    let made = ended
        .output
        .lines()
        .find_map(|line| line.strip_prefix("allocations=")?.parse::<u64>().ok())
        .with_context(|| format!("the target failed: {}", first_line(&ended.errors)))?;
    ensure!(made > 0, "the target allocated nothing");
    case.whole(&ended, made)?;
    Ok(format!("{made} allocations, none missing"))
}

fn mode(case: &CaseRun<'_>, mode: &str) -> Result<String> {
    let program = build(case, "languages", &["-ldl"])?;
    seen(
        case,
        &[program.as_ref(), mode.as_ref(), case.folder.as_ref()],
    )
}

pub(super) fn perf_map_names(case: &CaseRun<'_>) -> Result<String> {
    mode(case, "perf-map-names")
}

pub(super) fn perf_map_kinds(case: &CaseRun<'_>) -> Result<String> {
    mode(case, "perf-map-kinds")
}

pub(super) fn jitdump(case: &CaseRun<'_>) -> Result<String> {
    mode(case, "jitdump")
}

pub(super) fn false_java(case: &CaseRun<'_>) -> Result<String> {
    let program = build(case, "languages", &["-ldl"])?;
    let library = build(case, "libjvm.so", &["-DJVM", "-shared", "-fPIC"])?;
    seen(case, &[program.as_ref(), "java".as_ref(), library.as_ref()])
}

pub(super) fn overwritten_python(case: &CaseRun<'_>) -> Result<String> {
    let script = case.file("languages.py");
    fs::write(&script, include_str!("languages.py"))?;
    // Without modules of the installation, the report stays small.
    let options: &[&OsStr] = &["python3".as_ref(), "-I".as_ref(), "-S".as_ref()];
    seen(case, &[options, &[script.as_ref()]].concat())
}
