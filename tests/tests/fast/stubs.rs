//! Tests of slots that are shared: the program calls by them, through linkage stubs, and reads them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Compiler, Fixture, Heaptrace, MINUTE, Recording, c_optimized, send, truths, until,
};

use crate::{MEAN, installer_for, misses_no_free, moved, record_for, start_moved_of};

/// The fixture with slots of `malloc` and `free` that it both calls by, through linkage stubs, and reads. Fails if it has others.
fn shared(options: &[&str]) -> Result<Fixture> {
    let gcc = Compiler {
        name: "gcc",
        level: "-O2",
    };
    let fixture = c_optimized("busy", gcc, &[&["-DREADS_ADDRESSES"], options].concat())?;
    let output = Command::new("readelf")
        .arg("-rW")
        .arg(&fixture.path)
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    for name in [" malloc@", " free@"] {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(name)).collect();
        ensure!(
            lines.len() == 1 && lines[0].contains("R_X86_64_GLOB_DAT"),
            "{text}"
        );
    }
    Ok(fixture)
}

/// Check that calls by slots which the program also reads are on the fast path, whatever form their linkage stubs have and wherever the
/// program is loaded, that the program reads the same addresses all the while, and that the numbers are those that it counts
/// itself.
#[test]
fn shared_slots_are_on_the_fast_path() -> Result<()> {
    for options in [
        &[][..],
        &["-fcf-protection", "-Wl,-z,ibtplt"],
        &["-no-pie"],
        &["-no-pie", "-Wl,-z,ibtplt"],
    ] {
        let busy = shared(options)?;
        let run = |options: &[&str]| {
            let here = Heaptrace::tracing()?;
            let recording = here.record(options, &[busy.as_ref(), OsStr::new("2000")])?;
            ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
            Ok(recording)
        };
        let fast = run(&["--fast", "--sample", MEAN])?;
        fast.report.check_nothing_lost()?;
        assert_eq!(moved(&fast.report), 1);
        fast.agrees_with("main")?;
        let slow = run(&["--sample", MEAN])?;
        let (fast, slow) = (fast.truth("main")?, slow.truth("main")?);
        println!(
            "{options:?}: {} calls, without --fast {}",
            fast.allocations, slow.allocations
        );
        ensure!(fast.allocations > 3 * slow.allocations);
    }
    Ok(())
}

/// Whether the code of a program, as a process runs it, is another one than in its file.
fn has_changed_code(pid: u32, program: &Path) -> Result<bool> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let is_code =
        |line: &&str| line.contains(" r-xp ") && line.ends_with(&*program.to_string_lossy());
    let line = maps.lines().find(is_code).context("no code")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let (start, end) = words[0].split_once('-').context("no range")?;
    let number = |text| u64::from_str_radix(text, 16);
    let (start, end, offset) = (number(start)?, number(end)?, number(words[2])?);
    let read = |file: fs::File, at| {
        let mut bytes = vec![0; (end - start) as usize];
        let length = file.read_at(&mut bytes, at)?;
        bytes.truncate(length);
        Ok::<_, anyhow::Error>(bytes)
    };
    let in_file = read(fs::File::open(program)?, offset)?;
    let there = read(fs::File::open(format!("/proc/{pid}/mem"))?, start)?;
    Ok(there.get(..in_file.len()) != Some(&in_file))
}

/// Check that linkage stubs are changed and put back in a running process, run by run, that the next run uses the same links again, and
/// that it puts stubs back if heaptrace and its installer were killed together, of which a run without `--fast` warns.
#[test]
fn stubs_are_changed_and_put_back() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let busy = shared(&[])?;
    let (mut target, tracer) = start_moved_of(&busy, &here, &[])?;
    let pid = target.pid();
    let exact = || {
        let options = ["--exact", "--pid", &pid.to_string(), "--duration", "1s"];
        let exact = here.finish(here.start_record(&options)?)?;
        let (calls, frees) = (exact.report.totals.allocations, exact.report.totals.frees);
        println!("{calls} calls and {frees} frees in an exact run");
        Ok::<_, anyhow::Error>(exact)
    };
    let is_changed = || has_changed_code(pid, &busy.path);
    let until_changed = || until("changed stubs", MINUTE, is_changed);
    let sees_all = |exact: &Recording| {
        let totals = &exact.report.totals;
        ensure!(totals.frees * 10 > totals.allocations * 9);
        ensure!(!exact.ended.stderr.contains("--fast"));
        Ok(())
    };
    until_changed()?;
    tracer.signal(libc::SIGINT)?;
    let first = here.finish(tracer)?;
    assert_eq!(moved(&first.report), 1);
    ensure!(!is_changed()?);
    sees_all(&exact()?)?;
    let read = || Ok::<_, anyhow::Error>(fs::read_to_string(format!("/proc/{pid}/maps"))?);
    let links = |maps: &str| {
        maps.lines()
            .filter(|it| it.contains(" r--p 00000000 00:00 0"))
            .count()
    };
    let before = links(&read()?);
    ensure!(before > 0, "{}", read()?);
    let again = record_for(&here, &pid.to_string(), "1500ms")?;
    assert_eq!((moved(&again.report), links(&read()?)), (1, before));
    misses_no_free(&again.report)?;

    let options = ["--fast", "--sample", MEAN, "--pid", &pid.to_string()];
    let tracer = here.start_record(&options)?;
    until_changed()?;
    send(installer_for(pid)?, libc::SIGKILL)?;
    tracer.signal(libc::SIGKILL)?;
    tracer.wait()?;
    ensure!(is_changed()?);
    let hidden = exact()?;
    let is_said = hidden
        .ended
        .stderr
        .contains("run heaptrace with --fast once");
    ensure!(is_said, "{}", hidden.ended.stderr);
    let last = record_for(&here, &pid.to_string(), "2s")?;
    assert_eq!((moved(&last.report), links(&read()?)), (1, before));
    misses_no_free(&last.report)?;
    ensure!(!is_changed()?);
    sees_all(&exact()?)?;
    target.go()?;
    assert_eq!(truths(&target.wait()?.success()?.stdout)?.len(), 1);
    Ok(())
}
