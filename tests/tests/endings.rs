//! Tests of the ends of targets, of their names where their files are gone then, of the exit status that heaptrace passes on, and of
//! commands that never start.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};
use heaptrace_tests::{Heaptrace, Report, Site, bounds, c, ready_pid, run, send};

/// Records a child that ends while four threads allocate. The counts must be between the calls that began and the
/// calls that ended.
fn ends_while_allocating(how: &str) -> Result<()> {
    let fixture = c("endings")?;
    let recording =
        Heaptrace::tracing()?.record(&[], &[fixture.path.as_os_str(), OsStr::new(how)])?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    let bounds = bounds(&recording.ended.stdout)?;
    assert!(bounds.ended > 1000, "{bounds:?}");
    let report = &recording.report;
    let seen = report.within("truth_bounded");
    let lost = report.lost();
    assert!(seen.allocations <= bounds.begun, "{seen:?} of {bounds:?}");
    assert!(
        seen.allocations + lost >= bounds.ended,
        "{seen:?} and {lost} lost of {bounds:?}"
    );
    assert!(seen.frees <= bounds.frees_begun, "{seen:?} of {bounds:?}");
    assert!(
        seen.frees + lost >= bounds.frees_ended,
        "{seen:?} and {lost} lost of {bounds:?}"
    );
    assert!(report.images(bounds.pid).iter().all(|image| image.ended));
    Ok(())
}

/// Check that a process that exits while its threads allocate is counted to its last call.
#[test]
fn exit_while_allocating() -> Result<()> {
    ends_while_allocating("exit")
}

/// Check that a process that calls `_exit` while its threads allocate is counted to its last call.
#[test]
fn quick_exit_while_allocating() -> Result<()> {
    ends_while_allocating("quick")
}

/// Check that a process killed by SIGKILL while its threads allocate is counted to its last call.
#[test]
fn killed_while_allocating() -> Result<()> {
    ends_while_allocating("kill")
}

/// Check that a process that aborts while its threads allocate is counted to its last call.
#[test]
fn abort_while_allocating() -> Result<()> {
    ends_while_allocating("abort")
}

/// Check that a process that calls `exec` while its threads allocate is counted to its last call.
#[test]
fn exec_while_allocating() -> Result<()> {
    ends_while_allocating("exec")
}

/// Check that the command's exit status is passed on, and a fatal signal as 128 plus its number.
#[test]
fn the_status_is_passed_on() -> Result<()> {
    let here = Heaptrace::tracing()?;
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 128 + 15),
        ("kill -KILL $$", 128 + 9),
        ("kill -SEGV $$", 128 + 11),
    ] {
        let recording = here.record(&[], &["sh", "-c", script])?;
        assert_eq!(
            recording.ended.code(),
            code,
            "{script}: {}",
            recording.ended.stderr
        );
    }
    Ok(())
}

/// Check that a command that can't be started fails with its name, and with the status that a shell would give.
#[test]
fn commands_that_cannot_start_are_named() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let folder = here.folder().display().to_string();
    for (command, code) in [
        ("no-such-command-anywhere", 127),
        ("/no/such/path", 127),
        ("/etc/passwd", 126),
        (folder.as_str(), 126),
    ] {
        let ended = here
            .run(&["record", "--", command])?
            .fails_clearly()?
            .exits(code)?;
        assert!(ended.stderr.contains(command), "{}", ended.stderr);
    }
    Ok(())
}

/// Check that Ctrl-C, which the terminal sends to heaptrace and its command, ends both normally.
#[test]
fn interrupting_the_group_ends_both() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let forever = c("forever")?;
    let mut tracer = here.start_record(&[OsStr::new("--"), forever.path.as_os_str()])?;
    let pid = ready_pid(&tracer.line()?)?;
    here.wait_recorded(pid, 101)?;
    tracer.signal_group(libc::SIGINT)?;
    let recording = here.finish(tracer)?;
    let truth = recording.truth("main")?;
    let seen = recording.report.truth(Some(pid));
    assert!(seen.allocations > 100, "{seen:?}");
    assert!(
        seen.allocations <= truth.allocations,
        "{seen:?} of {truth:?}"
    );
    assert!(
        here.run(&["report", "heaptrace.data"])?
            .success()?
            .stderr
            .is_empty()
    );
    Ok(())
}

/// Check that a command killed from outside ends the run normally, and that its status is passed on.
#[test]
fn a_command_killed_from_outside() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let forever = c("forever")?;
    let mut tracer = here.start_record(&[OsStr::new("--"), forever.path.as_os_str()])?;
    let pid = ready_pid(&tracer.line()?)?;
    here.wait_recorded(pid, 101)?;
    send(i32::try_from(pid)?, libc::SIGKILL)?;
    let recording = here.finish(tracer)?;
    assert_eq!(recording.ended.code(), 128 + libc::SIGKILL);
    recording.report.check_nothing_lost()?;
    let process = recording.report.process(pid)?;
    assert!(process.ended);
    assert!(process.totals.allocations > 100, "{process:?}");
    Ok(())
}

/// Check that a command's standard input reaches it.
#[test]
fn standard_input_reaches_the_command() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let forever = c("forever")?;
    let mut tracer = here.start_record(&[OsStr::new("--"), forever.path.as_os_str()])?;
    let pid = ready_pid(&tracer.line()?)?;
    tracer.go()?;
    let recording = here.finish(tracer)?;
    assert_eq!(recording.ended.code(), 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    recording
        .truth("main")?
        .matches(&recording.report.truth(Some(pid)))
}

/// Check that processes of some milliseconds have their names although their files are deleted, or replaced by another program, as soon as they
/// end, and that no name of the other program is used, neither in the run nor later.
#[test]
fn short_processes_have_names_without_their_files() -> Result<()> {
    const ROUNDS: usize = 6;
    let here = Heaptrace::tracing()?;
    for (name, function) in [
        ("first", "of_the_program"),
        ("second", "of_another_program"),
    ] {
        let source = here.path(&format!("{name}.c"));
        let code = format!(
            "#include <stdlib.h>
            #include <unistd.h>
            void *volatile kept;
            {}
            __attribute__((noinline)) void {function}(void) {{ kept = malloc(4321); kept = 0; }}
            int main(void) {{ {function}(); return usleep(3000); }}",
            // The other program's functions are at other addresses.
            if name == "second" {
                "int other(int n) { return n * 7; }"
            } else {
                ""
            }
        );
        fs::write(&source, code)?;
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-g", "-o"]).arg(here.path(name));
        run(compiler.arg(&source))?.success()?;
    }
    let script = format!(
        "cd {}; n=0
        while [ $n -lt {ROUNDS} ]; do
            cp first deleted$n; ./deleted$n; rm deleted$n
            cp first replaced$n; cp second new; ./replaced$n; mv new replaced$n
            n=$((n+1))
        done",
        here.folder().display()
    );
    let recording = here.record_all(&["sh", "-c", &script])?;
    let check = |report: &Report| -> Result<()> {
        let of_program = |site: &&Site| site.totals.allocated_bytes == 4321;
        let sites: Vec<&Site> = report.sites.iter().filter(of_program).collect();
        assert_eq!(sites.len(), 2 * ROUNDS);
        for site in sites {
            let frames: Vec<_> = site.stack.iter().map(|it| it.function.as_deref()).collect();
            ensure!(site.has("of_the_program") && site.has("main"), "{frames:?}");
        }
        ensure!(
            !report
                .sites
                .iter()
                .any(|site| site.has("of_another_program"))
        );
        Ok(())
    };
    check(&recording.report)?;
    here.run(&["symbolize"])?.success()?;
    check(&here.report()?)
}
