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
fn library(case: &CaseRun<'_>, name: &str) -> Result<PathBuf> {
    let path = case.file(name);
    Elf::exporting(&[("through", CODE, 14)])
        .with_build_id(&[9; 20])
        .write(&path)?;
    Ok(path)
}

fn seen(case: &CaseRun<'_>, mode: &[&OsStr], at_least: u64) -> Result<String> {
    case.traced(mode, at_least)?;
    Ok(format!("{at_least} allocations, none missing"))
}

pub(super) fn plain(case: &CaseRun<'_>) -> Result<String> {
    let report = case.traced(&["plain".as_ref()], 100)?;
    let names = functions(&report);
    ensure!(names.iter().any(|name| name == "zoo_allocate"), "no names");
    Ok("100 allocations, with names".to_owned())
}

pub(super) fn pipe_over_a_mapped_file(case: &CaseRun<'_>) -> Result<String> {
    replaced(case, "0")
}

/// Runs once with a process that is gone when its files are opened, and once with one that still runs.
fn replaced(case: &CaseRun<'_>, kind: &str) -> Result<String> {
    let path = library(case, "x.so")?;
    let mode = ["map-replaced".as_ref(), word(&path), kind.as_ref()];
    seen(case, &mode, 200)?;
    fs::remove_file(&path)?;
    let path = library(case, "x.so")?;
    let mode = [
        "map-replaced".as_ref(),
        word(&path),
        kind.as_ref(),
        "wait".as_ref(),
    ];
    seen(case, &mode, 200)
}

pub(super) fn device_over_a_mapped_file(case: &CaseRun<'_>) -> Result<String> {
    replaced(case, "1")
}

/// The truncated file is large, so that reading its names takes time.
pub(super) fn truncated_while_mapped(case: &CaseRun<'_>) -> Result<String> {
    let path = case.file("x.so");
    let mut bytes = fs::read(library(case, "small.so")?)?;
    bytes.resize(4 << 20, 0);
    fs::write(&path, bytes)?;
    super::surroundings::make_executable(&path)?;
    seen(case, &["map-truncated".as_ref(), word(&path)], 350)
}

/// The same with the live view, which looks up names during the run.
pub(super) fn truncated_in_live_view(case: &CaseRun<'_>) -> Result<String> {
    let path = case.file("x.so");
    let mut bytes = fs::read(library(case, "small.so")?)?;
    bytes.resize(4 << 20, 0);
    for _ in 0..3 {
        fs::write(&path, &bytes)?;
        super::surroundings::make_executable(&path)?;
        let mut arguments = super::ended::words(&["--interval", "100ms", "--"]);
        arguments.push(case.suite.program.clone().into());
        arguments.extend(["map-truncated".into(), path.clone().into()]);
        let ended = case.run(&arguments)?;
        ensure!(ended.status.code() == Some(0), "{}", ended.status);
    }
    Ok("3 of 3 ended normally".to_owned())
}

pub(super) fn deleted(case: &CaseRun<'_>) -> Result<String> {
    let path = library(case, "x.so")?;
    seen(case, &["map-deleted".as_ref(), word(&path)], 200)
}

pub(super) fn written_while_mapped(case: &CaseRun<'_>) -> Result<String> {
    let path = case.file("x.so");
    let mut bytes = fs::read(library(case, "small.so")?)?;
    bytes.resize(1 << 20, 0);
    fs::write(&path, bytes)?;
    seen(case, &["map-written".as_ref(), word(&path)], 200)
}

pub(super) fn memory_file(case: &CaseRun<'_>) -> Result<String> {
    let path = library(case, "x.so")?;
    seen(case, &["memfd".as_ref(), word(&path)], 200)
}

/// Runs in its own root folder, with a file at a path where the host has a different file.
pub(super) fn other_root(case: &CaseRun<'_>) -> Result<String> {
    let (root, inside) = (case.file("root"), "/tmp/heaptrace-zoo-other-root.so");
    fs::create_dir_all(root.join("tmp"))?;
    let host = PathBuf::from(inside);
    Elf::exporting(&[("name_of_the_host", CODE, 14)])
        .with_build_id(&[5; 20])
        .write(&host)?;
    Elf::exporting(&[("name_of_the_container", CODE, 14)])
        .with_build_id(&[5; 20])
        .write(&root.join("tmp/heaptrace-zoo-other-root.so"))?;
    let result = case.traced(&["chroot".as_ref(), word(&root), inside.as_ref()], 200);
    fs::remove_file(&host)?;
    let names = functions(&result?);
    ensure!(
        !names.iter().any(|name| name == "name_of_the_host"),
        "a file of the host was read instead of the container's file"
    );
    Ok("no name from the host's file".to_owned())
}

pub(super) fn many_files(case: &CaseRun<'_>) -> Result<String> {
    let (small, folder) = (library(case, "small.so")?, case.file("many"));
    fs::create_dir_all(&folder)?;
    let report = case.traced(
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

pub(super) fn many_mappings(case: &CaseRun<'_>) -> Result<String> {
    let path = library(case, "x.so")?;
    seen(
        case,
        &["many-mappings".as_ref(), word(&path), "10000".as_ref()],
        200,
    )
}

fn number(case: &CaseRun<'_>, mode: &str, count: &str, at_least: u64) -> Result<String> {
    seen(
        case,
        &[mode.as_ref(), "-".as_ref(), count.as_ref()],
        at_least,
    )
}

pub(super) fn forks(case: &CaseRun<'_>) -> Result<String> {
    number(case, "forks", "2000", 2100)
}

pub(super) fn execs(case: &CaseRun<'_>) -> Result<String> {
    number(case, "execs", "100", 100 * 101)
}

pub(super) fn threads(case: &CaseRun<'_>) -> Result<String> {
    number(case, "threads", "2000", 100)
}

pub(super) fn deep_stack(case: &CaseRun<'_>) -> Result<String> {
    number(case, "deep", "40000", 120)
}

pub(super) fn zombies(case: &CaseRun<'_>) -> Result<String> {
    number(case, "zombies", "500", 100)
}

pub(super) fn own_code(case: &CaseRun<'_>) -> Result<String> {
    seen(case, &["jit".as_ref()], 600)
}

pub(super) fn bad_frame_pointers(case: &CaseRun<'_>) -> Result<String> {
    seen(case, &["bad-frame-pointer".as_ref()], 300)
}

pub(super) fn names_of_threads(case: &CaseRun<'_>) -> Result<String> {
    seen(case, &["comm".as_ref()], 1100)
}

pub(super) fn ptraced(case: &CaseRun<'_>) -> Result<String> {
    seen(case, &["traced".as_ref()], 200)
}

pub(super) fn undumpable(case: &CaseRun<'_>) -> Result<String> {
    seen(case, &["undumpable".as_ref()], 300)
}

pub(super) fn signals(case: &CaseRun<'_>) -> Result<String> {
    seen(case, &["signals".as_ref()], 300)
}

/// Runs a copy of the program under another name.
fn renamed(case: &CaseRun<'_>, path: &PathBuf, mode: &[&OsStr], at_least: u64) -> Result<String> {
    fs::copy(&case.suite.program, path)?;
    let mut arguments = super::ended::words(&["record", "-o"]);
    arguments.extend([case.data().into(), "--".into(), path.clone().into()]);
    arguments.extend(mode.iter().map(Into::into));
    let ended = case.run(&arguments)?;
    case.whole(&ended, at_least)?;
    for format in ["flamegraph", "pprof"] {
        let mut arguments = super::ended::words(&[format, "-o", "drawn"]);
        if format == "flamegraph" {
            arguments.extend(super::ended::words(&["--metric", "total-bytes"]));
        }
        arguments.push(case.data().into());
        let ended = case.run(&arguments)?;
        ensure!(ended.status.success(), "{format}: {}", ended.errors);
        let drawn = fs::read(case.file("drawn"))?;
        ensure!(
            !drawn.contains(&0x1b) || format == "pprof",
            "an escape sequence was drawn"
        );
    }
    Ok(format!("{at_least} allocations, printed as text"))
}

pub(super) fn name_with_escapes(case: &CaseRun<'_>) -> Result<String> {
    let path = case.file("evil\x1b[2J\n<script>\u{202e} (deleted)");
    renamed(
        case,
        &path,
        &["plain".as_ref(), "\x1b]0;title\x07".as_ref()],
        100,
    )
}

pub(super) fn name_that_is_no_text(case: &CaseRun<'_>) -> Result<String> {
    let path = case.folder.join(OsStr::from_bytes(b"\xff\xfe\x80name\xc3"));
    let word = OsStr::from_bytes(b"\x80\xff");
    renamed(case, &path, &["plain".as_ref(), word], 100)
}

pub(super) fn long_path(case: &CaseRun<'_>) -> Result<String> {
    let mut path = case.folder.clone();
    while path.as_os_str().len() < 3700 {
        path.push("d".repeat(240));
    }
    fs::create_dir_all(&path)?;
    let long = "x".repeat(120_000);
    renamed(
        case,
        &path.join("zoo"),
        &["plain".as_ref(), long.as_ref()],
        100,
    )
}

/// Runs root's setuid program.
pub(super) fn setuid(case: &CaseRun<'_>) -> Result<String> {
    let path = case.file("setuid");
    fs::copy(&case.suite.program, &path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755))?;
    seen(case, &["exec".as_ref(), word(&path)], 200)
}
