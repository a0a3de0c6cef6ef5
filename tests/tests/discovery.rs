//! Tests of the sources of an allocator's function names, and of programs whose functions must not be probed.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Fixture, Heaptrace, Recording, c, c_linked, c_plugin, go, ready_pid, require_tool, run,
    stripped, truths,
};

/// A program statically linked with musl, to be stripped. Only the program itself allocates in it.
fn built_in(name: &str) -> Result<Fixture> {
    let options = ["-static", "-Wl,--build-id"];
    c_linked(name, &format!("{name}-id"), "musl-gcc", &options)
}

fn tool(name: &str, package: &str, arguments: &[&OsStr]) -> Result<()> {
    require_tool(name, package)?;
    run(Command::new(name).args(arguments))?.success()?;
    Ok(())
}

/// Writes the symbols and debug information of a program to a file of their own.
fn split_off(program: &Fixture, debug: &Path) -> Result<()> {
    let arguments = [
        OsStr::new("--only-keep-debug"),
        program.as_ref(),
        debug.as_os_str(),
    ];
    tool("objcopy", "binutils", &arguments)
}

/// The build id of a program, in hexadecimal digits.
fn build_id(program: &Fixture) -> Result<String> {
    let notes = run(Command::new("readelf").args([OsStr::new("-n"), program.as_ref()]))?;
    let (_, rest) = notes
        .stdout
        .split_once("Build ID: ")
        .context("no build id")?;
    Ok(rest
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned())
}

fn exactly(recording: &Recording, kind: &str) -> Result<()> {
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    let truth = recording.truth("main")?;
    // The sites have no names, but nothing else allocates.
    truth.matches(&recording.report.totals)?;
    let process = recording.report.process(truth.pid)?;
    ensure!(
        process.allocators.iter().any(|it| it.kind == kind),
        "{process:?}"
    );
    Ok(())
}

/// Check that the functions of an allocator in a stripped program are found by the symbols of a debug file next to it.
#[test]
fn symbols_are_found_in_a_linked_debug_file() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let program = built_in("hooks")?;
    let path = here.path("program");
    fs::copy(&stripped(&program)?.path, &path)?;
    fs::create_dir(here.path(".debug"))?;
    let debug = here.path(".debug/program.debug");
    split_off(&program, &debug)?;
    let link = format!("--add-gnu-debuglink={}", debug.display());
    tool(
        "objcopy",
        "binutils",
        &[OsStr::new(&link), path.as_os_str()],
    )?;
    exactly(
        &here.record(&[], &[path.as_os_str(), OsStr::new("no-pvalloc")])?,
        "musl",
    )?;
    // A debug file of another build is not used.
    split_off(&built_in("late")?, &debug)?;
    let recording = here.record(&[], &[path.as_os_str(), OsStr::new("no-pvalloc")])?;
    assert_eq!(recording.report.totals.allocations, 0);
    Ok(())
}

/// Check that the functions are found by the program's build id in the debug files of the program's own root folder.
#[test]
fn symbols_are_found_by_build_id() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let program = built_in("older")?;
    let root = here.path("root");
    fs::create_dir(&root)?;
    fs::copy(&stripped(&program)?.path, root.join("program"))?;
    let id = build_id(&program)?;
    ensure!(id.len() > 4, "a build id of {id:?}");
    let folder = root.join("usr/lib/debug/.build-id").join(&id[..2]);
    fs::create_dir_all(&folder)?;
    split_off(&program, &folder.join(format!("{}.debug", &id[2..])))?;
    let mut command = Command::new("chroot");
    let mut target = Child::spawn(command.arg(&root).arg("/program"))?;
    let pid = ready_pid(&target.line()?)?;
    let mut tracer = here.start_record(&["--pid", &pid.to_string()])?;
    here.wait_watching(&mut tracer)?;
    target.go()?;
    let ended = target.wait()?.success()?;
    let recording = here.finish(tracer)?;
    recording.report.check_nothing_lost()?;
    let truths = truths(&ended.stdout)?;
    ensure!(truths.len() == 2, "{}", ended.stdout);
    for truth in truths {
        truth.matches(&recording.report.process(truth.pid)?.totals)?;
    }
    Ok(())
}

/// Check that the functions are found in a compressed symbol table inside of the program (mini debuginfo).
#[test]
fn symbols_are_found_in_mini_debuginfo() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let program = built_in("hooks")?;
    let (path, mini) = (here.path("program"), here.path("mini"));
    fs::copy(&stripped(&program)?.path, &path)?;
    split_off(&program, &mini)?;
    tool(
        "objcopy",
        "binutils",
        &[OsStr::new("--strip-debug"), mini.as_os_str()],
    )?;
    tool("xz", "xz-utils", &[mini.as_os_str()])?;
    let section = format!(".gnu_debugdata={}", here.path("mini.xz").display());
    let arguments = [
        OsStr::new("--add-section"),
        OsStr::new(&section),
        path.as_os_str(),
    ];
    tool("objcopy", "binutils", &arguments)?;
    exactly(
        &here.record(&[], &[path.as_os_str(), OsStr::new("no-pvalloc")])?,
        "musl",
    )
}

/// Check that C allocations of a Go program are counted exactly, from goroutines whose stacks are moved meanwhile, and
/// that no Go function is probed, even if the user names it.
#[test]
fn go_functions_are_not_probed() -> Result<()> {
    let program = go("cgo")?;
    let here = Heaptrace::tracing()?;
    let named = format!("{}:main.", program.path.display());
    for options in [&[][..], &["--allocator", &named]] {
        let recording = here.record(options, &[&program])?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        let report = &recording.report;
        report.check_nothing_lost()?;
        let truth = recording.truth("main")?;
        truth.matches(&report.truth(Some(truth.pid)))?;
        ensure!(truth.allocations > 1000, "{truth:?}");
        let allocators = &report.process(truth.pid)?.allocators;
        ensure!(
            allocators.iter().all(|it| it.path.contains("/libc.so")),
            "{allocators:?}"
        );
        let unprobed = &report.quality.unprobed;
        ensure!(
            unprobed
                .iter()
                .any(|it| it.contains("/cgo: ") && it.contains("Go")),
            "{unprobed:?}"
        );
    }
    Ok(())
}

/// Records a program whose allocator function is selected when the program starts (IFUNC). The report must name the
/// function as not probed.
fn on_indirect(library: &Fixture, function: &str) -> Result<Recording> {
    let preload = format!("LD_PRELOAD={}", library.path.display());
    let fixture = c("hooks")?;
    let command = [
        OsStr::new("env"),
        OsStr::new(&preload),
        fixture.as_ref(),
        OsStr::new("no-pvalloc"),
    ];
    let recording = Heaptrace::tracing()?.record(&[], &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let said = format!("/{}: {function} ", library.name());
    let unprobed = &recording.report.quality.unprobed;
    ensure!(
        unprobed
            .iter()
            .any(|it| it.contains(&said) && it.contains("IFUNC")),
        "{unprobed:?}"
    );
    Ok(recording)
}

/// Check that an IFUNC `malloc` is named as not probed, that the program runs normally, and that the allocator's other
/// functions are counted.
#[test]
fn an_indirect_malloc_is_named() -> Result<()> {
    let recording = on_indirect(&c_plugin("indirect")?, "malloc")?;
    let truth = recording.truth("main")?;
    let (calls, bytes) = truth.hooks["truth_calloc"];
    let seen = recording.report.within("truth_calloc");
    assert_eq!((seen.allocations, seen.allocated_bytes), (calls, bytes));
    ensure!(calls > 0 && truth.hooks["truth_malloc"].0 > 0, "{truth:?}");
    Ok(())
}

/// Check that if `free` is an IFUNC, no block of that allocator is reported as a leak.
#[test]
fn an_indirect_free_makes_no_leaks() -> Result<()> {
    let options = ["-fPIC", "-shared", "-DINDIRECT_FREE"];
    let library = c_linked("indirect", "indirect-free.so", "cc", &options)?;
    let recording = on_indirect(&library, "free")?;
    for function in ["truth_malloc", "truth_calloc", "truth_realloc"] {
        assert_eq!(recording.report.within(function).unfreed_allocations(), 0);
    }
    Ok(())
}
