//! Hostile programs: their mappings, forks, names and code.
//!
//! Part of hostile.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::elf::{CODE, Elf};
use super::suite::{CaseRun, functions, word};

/// A small file with callable code.
fn library(case_run: &CaseRun<'_>, name: &str) -> Result<PathBuf> {
    let path = case_run.file(name);
    Elf::exporting(&[("through", CODE, 14)])
        .with_build_id(&[9; 20])
        .write(&path)?;
    Ok(path)
}

fn seen(case_run: &CaseRun<'_>, mode: &[&OsStr], at_least: u64) -> Result<String> {
    case_run.traced(mode, at_least)?;
    Ok(format!("{at_least} allocations, none missing"))
}

pub(super) fn plain(case_run: &CaseRun<'_>) -> Result<String> {
    let report = case_run.traced(&["plain".as_ref()], 100)?;
    let names = functions(&report);
    ensure!(names.iter().any(|name| name == "zoo_allocate"), "no names");
    Ok("100 allocations, with names".to_owned())
}

pub(super) fn pipe_over_a_mapped_file(case_run: &CaseRun<'_>) -> Result<String> {
    replaced(case_run, "0")
}

/// Runs once with a process that is gone when its files are opened, and once with one that still runs.
fn replaced(case_run: &CaseRun<'_>, kind: &str) -> Result<String> {
    let path = library(case_run, "x.so")?;
    let mode = ["map-replaced".as_ref(), word(&path), kind.as_ref()];
    seen(case_run, &mode, 200)?;
    fs::remove_file(&path)?;
    let path = library(case_run, "x.so")?;
    let mode = [
        "map-replaced".as_ref(),
        word(&path),
        kind.as_ref(),
        "wait".as_ref(),
    ];
    seen(case_run, &mode, 200)
}

pub(super) fn device_over_a_mapped_file(case_run: &CaseRun<'_>) -> Result<String> {
    replaced(case_run, "1")
}

/// The truncated file is large, so that reading its names takes time.
pub(super) fn truncated_while_mapped(case_run: &CaseRun<'_>) -> Result<String> {
    let path = case_run.file("x.so");
    let mut bytes = fs::read(library(case_run, "small.so")?)?;
    bytes.resize(4 << 20, 0);
    fs::write(&path, bytes)?;
    super::surroundings::make_executable(&path)?;
    seen(case_run, &["map-truncated".as_ref(), word(&path)], 350)
}

/// The same with the live view, which looks up names during the run.
pub(super) fn truncated_in_live_view(case_run: &CaseRun<'_>) -> Result<String> {
    let path = case_run.file("x.so");
    let mut bytes = fs::read(library(case_run, "small.so")?)?;
    bytes.resize(4 << 20, 0);
    for _ in 0..3 {
        fs::write(&path, &bytes)?;
        super::surroundings::make_executable(&path)?;
        let mut arguments = super::ended::words(&["--interval", "100ms", "--"]);
        arguments.push(case_run.suite.program.clone().into());
        arguments.extend(["map-truncated".into(), path.clone().into()]);
        let ended = case_run.run(&arguments)?;
        ensure!(ended.status.code() == Some(0), "{}", ended.status);
    }
    Ok("3 of 3 ended normally".to_owned())
}

pub(super) fn deleted(case_run: &CaseRun<'_>) -> Result<String> {
    let path = library(case_run, "x.so")?;
    seen(case_run, &["map-deleted".as_ref(), word(&path)], 200)
}

pub(super) fn written_while_mapped(case_run: &CaseRun<'_>) -> Result<String> {
    let path = case_run.file("x.so");
    let mut bytes = fs::read(library(case_run, "small.so")?)?;
    bytes.resize(1 << 20, 0);
    fs::write(&path, bytes)?;
    seen(case_run, &["map-written".as_ref(), word(&path)], 200)
}

pub(super) fn memory_file(case_run: &CaseRun<'_>) -> Result<String> {
    let path = library(case_run, "x.so")?;
    seen(case_run, &["memfd".as_ref(), word(&path)], 200)
}

/// Runs in its own root folder, with a file at a path where the host has a different file.
pub(super) fn other_root(case_run: &CaseRun<'_>) -> Result<String> {
    let (root, inside) = (case_run.file("root"), "/tmp/heaptrace-zoo-other-root.so");
    fs::create_dir_all(root.join("tmp"))?;
    let host = PathBuf::from(inside);
    Elf::exporting(&[("name_of_the_host", CODE, 14)])
        .with_build_id(&[5; 20])
        .write(&host)?;
    Elf::exporting(&[("name_of_the_container", CODE, 14)])
        .with_build_id(&[5; 20])
        .write(&root.join("tmp/heaptrace-zoo-other-root.so"))?;
    let result = case_run.traced(&["chroot".as_ref(), word(&root), inside.as_ref()], 200);
    fs::remove_file(&host)?;
    let names = functions(&result?);
    ensure!(
        !names.iter().any(|name| name == "name_of_the_host"),
        "a file of the host was read instead of the container's file"
    );
    Ok("no name from the host's file".to_owned())
}

pub(super) fn many_files(case_run: &CaseRun<'_>) -> Result<String> {
    let (small, folder) = (library(case_run, "small.so")?, case_run.file("many"));
    fs::create_dir_all(&folder)?;
    let report = case_run.traced(
        &[
            "many-files".as_ref(),
            word(&folder),
            "5000".as_ref(),
            word(&small),
        ],
        5100,
    )?;
    fs::remove_dir_all(&folder)?;
    let noted = report["quality"]["noted"].as_object();
    let noted: u64 = noted
        .into_iter()
        .flatten()
        .filter_map(|(_, n)| n.as_u64())
        .sum();
    Ok(format!("all 5,000 seen; {noted} notes"))
}

pub(super) fn many_mappings(case_run: &CaseRun<'_>) -> Result<String> {
    let path = library(case_run, "x.so")?;
    seen(
        case_run,
        &["many-mappings".as_ref(), word(&path), "10000".as_ref()],
        200,
    )
}

fn number(case_run: &CaseRun<'_>, mode: &str, count: &str, at_least: u64) -> Result<String> {
    seen(
        case_run,
        &[mode.as_ref(), "-".as_ref(), count.as_ref()],
        at_least,
    )
}

pub(super) fn forks(case_run: &CaseRun<'_>) -> Result<String> {
    number(case_run, "forks", "2000", 2100)
}

pub(super) fn execs(case_run: &CaseRun<'_>) -> Result<String> {
    number(case_run, "execs", "100", 100 * 101)
}

pub(super) fn threads(case_run: &CaseRun<'_>) -> Result<String> {
    number(case_run, "threads", "2000", 100)
}

pub(super) fn deep_stack(case_run: &CaseRun<'_>) -> Result<String> {
    number(case_run, "deep", "40000", 120)
}

pub(super) fn zombies(case_run: &CaseRun<'_>) -> Result<String> {
    number(case_run, "zombies", "500", 100)
}

pub(super) fn own_code(case_run: &CaseRun<'_>) -> Result<String> {
    seen(case_run, &["jit".as_ref()], 600)
}

pub(super) fn bad_frame_pointers(case_run: &CaseRun<'_>) -> Result<String> {
    seen(case_run, &["bad-frame-pointer".as_ref()], 300)
}

pub(super) fn names_of_threads(case_run: &CaseRun<'_>) -> Result<String> {
    seen(case_run, &["comm".as_ref()], 1100)
}

pub(super) fn ptraced(case_run: &CaseRun<'_>) -> Result<String> {
    seen(case_run, &["traced".as_ref()], 200)
}

pub(super) fn undumpable(case_run: &CaseRun<'_>) -> Result<String> {
    seen(case_run, &["undumpable".as_ref()], 300)
}

pub(super) fn signals(case_run: &CaseRun<'_>) -> Result<String> {
    seen(case_run, &["signals".as_ref()], 300)
}

/// Runs a copy of the program under another name.
fn renamed(
    case_run: &CaseRun<'_>,
    path: &PathBuf,
    mode: &[&OsStr],
    at_least: u64,
) -> Result<String> {
    fs::copy(&case_run.suite.program, path)?;
    let mut arguments = super::ended::words(&["record", "-o"]);
    arguments.extend([case_run.data().into(), "--".into(), path.clone().into()]);
    arguments.extend(mode.iter().map(Into::into));
    let ended = case_run.run(&arguments)?;
    case_run.whole(&ended, at_least)?;
    for format in ["flamegraph", "pprof"] {
        let mut arguments = super::ended::words(&[format, "-o", "drawn"]);
        if format == "flamegraph" {
            arguments.extend(super::ended::words(&["--metric", "total-bytes"]));
        }
        arguments.push(case_run.data().into());
        let ended = case_run.run(&arguments)?;
        ensure!(ended.status.success(), "{format}: {}", ended.errors);
        let drawn = fs::read(case_run.file("drawn"))?;
        ensure!(
            !drawn.contains(&0x1b) || format == "pprof",
            "an escape sequence was drawn"
        );
    }
    Ok(format!("{at_least} allocations, printed as text"))
}

pub(super) fn name_with_escapes(case_run: &CaseRun<'_>) -> Result<String> {
    let path = case_run.file("evil\x1b[2J\n<script>\u{202e} (deleted)");
    renamed(
        case_run,
        &path,
        &["plain".as_ref(), "\x1b]0;title\x07".as_ref()],
        100,
    )
}

pub(super) fn name_that_is_no_text(case_run: &CaseRun<'_>) -> Result<String> {
    let path = case_run
        .folder
        .join(OsStr::from_bytes(b"\xff\xfe\x80name\xc3"));
    let word = OsStr::from_bytes(b"\x80\xff");
    renamed(case_run, &path, &["plain".as_ref(), word], 100)
}

pub(super) fn long_path(case_run: &CaseRun<'_>) -> Result<String> {
    let mut path = case_run.folder.clone();
    while path.as_os_str().len() < 3700 {
        path.push("d".repeat(240));
    }
    fs::create_dir_all(&path)?;
    let long = "x".repeat(120_000);
    renamed(
        case_run,
        &path.join("zoo"),
        &["plain".as_ref(), long.as_ref()],
        100,
    )
}

/// Runs root's setuid program.
pub(super) fn setuid(case_run: &CaseRun<'_>) -> Result<String> {
    let path = case_run.file("setuid");
    fs::copy(&case_run.suite.program, &path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755))?;
    seen(case_run, &["exec".as_ref(), word(&path)], 200)
}
