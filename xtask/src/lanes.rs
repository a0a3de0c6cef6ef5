//! Runs test programs, two at a time where they don't disturb each other.
//!
//! Part of the task test. Tests mostly wait for the kernel, which takes some 70 ms to remove a probe. It must not know what a test checks.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::process;
use crate::test_result::Counts;

/// How many run at a time.
const LANES: usize = 2;

/// Programs that must run alone: they trace the whole machine, measure times, or check what is left on the machine.
const ALONE: [&str; 14] = [
    "all_processes",
    "as_user",
    "cleanup",
    "fast_exact",
    "fast_installer",
    "faults",
    "lifecycle",
    "limits",
    "one_by_one",
    "overhead",
    "privileges",
    "readers",
    "selected",
    "unprobed",
];

/// The programs that take longest, which begin first, so that none of them is still running when all others have ended.
const LONGEST: [&str; 5] = [
    "fast",
    "allocators",
    "wrapped",
    "fast_accuracy",
    "fast_allocators",
];

/// A test program.
#[derive(Debug)]
pub struct Program {
    /// The name of the suite.
    pub name: String,
    /// How it is run.
    pub command: Command,
}

/// What is known of the programs that have ended.
struct Done<'a> {
    counts: Counts,
    failures: Vec<String>,
    out: &'a mut (dyn Write + Send),
}

/// Runs the programs, counts the test results, and prints the output of each program as a whole when it ends. Returns what failed.
pub fn run(
    programs: Vec<Program>,
    counts: &mut Counts,
    out: &mut (dyn Write + Send),
) -> Vec<String> {
    let (alone, mut shared): (Vec<_>, Vec<_>) = programs
        .into_iter()
        .partition(|it| ALONE.contains(&it.name.as_str()));
    let place = |it: &Program| LONGEST.iter().position(|name| *name == it.name);
    shared.sort_by_key(|it| place(it).unwrap_or(LONGEST.len()));
    let done = Mutex::new(Done {
        counts: Counts::default(),
        failures: Vec::new(),
        out,
    });
    in_lanes(LANES, shared, &done);
    in_lanes(1, alone, &done);
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    counts.add(done.counts);
    done.failures
}

fn in_lanes(lanes: usize, programs: Vec<Program>, done: &Mutex<Done<'_>>) {
    let waiting = Mutex::new(VecDeque::from(programs));
    let next = || locked(&waiting).pop_front();
    let lane = || {
        while let Some(program) = next() {
            one(program, done);
        }
    };
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(lane);
        }
    });
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program, and prints its output.
fn one(program: Program, done: &Mutex<Done<'_>>) {
    let Program { name, command } = program;
    let described = process::describe(&command);
    // The reader of the output may be gone; the results count all the same.
    let _ = writeln!(locked(done).out, "    running {name}");
    let begin = Instant::now();
    let (output, result) = whole(command);
    let seconds = begin.elapsed().as_secs_f64();
    let mut done = locked(done);
    let _ = writeln!(done.out, "    {name} took {seconds:.1} s: {described}");
    let _ = done.out.write_all(&output);
    // A test can print any bytes.
    let text = String::from_utf8_lossy(&output);
    text.lines().for_each(|line| done.counts.read(line));
    if let Err(why) = result {
        // libtest ends with the names of what failed.
        let names: Vec<_> = text
            .rsplit_once("\nfailures:\n")
            .map_or("", |(_, list)| list)
            .lines()
            .map_while(|line| line.strip_prefix("    "))
            .collect();
        let names = names.join(", ");
        done.failures
            .push(format!("`{described}` failed: {why} {names}"));
    }
}

/// The output and errors of a command, in their order, and why it failed if it did.
fn whole(mut command: Command) -> (Vec<u8>, Result<(), String>) {
    let mut output = Vec::new();
    let result = (|| -> io::Result<ExitStatus> {
        let (mut reader, writer) = io::pipe()?;
        command.stdin(Stdio::null());
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // It holds the writing end, which would stay open.
        drop(command);
        reader.read_to_end(&mut output)?;
        child.wait()
    })();
    let result = match result {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    };
    (output, result)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::workspace;

    fn shell(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program {
            name: name.to_owned(),
            command,
        }
    }

    fn result(passed: u32, failed: u32) -> String {
        let word = if failed == 0 { "ok" } else { "FAILED" };
        format!(
            "echo 'test result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out'"
        )
    }

    /// Check that all programs run, that the results of all are counted, and that each failure is named.
    #[test]
    fn results_of_all_are_counted() {
        let failing = format!("{} >&2; exit 101", result(2, 1));
        let programs = vec![
            shell("a", &result(3, 0)),
            shell("overhead", &result(4, 0)),
            shell("b", &failing),
            shell("c", "exec /no/such/program"),
        ];
        let mut counts = Counts::default();
        let mut out = Vec::new();
        let failures = run(programs, &mut counts, &mut out);
        assert_eq!((counts.passed, counts.failed), (9, 1));
        assert_eq!(failures.len(), 2, "{failures:?}");
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("running overhead\n") && out.contains("ok. 4 passed"));
    }

    /// Check that programs run at the same time, and those that must run alone don't.
    #[test]
    fn some_run_at_the_same_time() {
        let folder = std::env::temp_dir().join(format!("heaptrace-lanes-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let at = folder.display();
        // Each waits for the other's file.
        let meets = |own: &str, other: &str| {
            format!(
                "touch {at}/{own}; for i in $(seq 600); do test -e {at}/{other} && exit 0; sleep 0.05; done; exit 1"
            )
        };
        let alone = format!("mkdir {at}/alone && sleep 0.2 && rmdir {at}/alone");
        let programs = vec![
            shell("a", &meets("a", "b")),
            shell("b", &meets("b", "a")),
            shell("cleanup", &alone),
            shell("overhead", &alone),
        ];
        let failures = run(programs, &mut Counts::default(), &mut Vec::new());
        fs::remove_dir_all(&folder).unwrap();
        assert!(failures.is_empty(), "{failures:?}");
    }

    /// Check that every suite that traces the whole machine runs alone, and that the lists name suites.
    #[test]
    fn suites_that_trace_all_run_alone() {
        let tests = workspace::root().join("tests/tests");
        let has = |path: &Path| fs::read_to_string(path).unwrap().contains("\"--all\"");
        for name in ALONE.iter().chain(&LONGEST) {
            let is_there = ["", ".rs"]
                .iter()
                .any(|end| tests.join(format!("{name}{end}")).exists());
            assert!(is_there, "{name}");
        }
        for suite in workspace::root_suites().unwrap() {
            let mut files = vec![tests.join(format!("{suite}.rs"))];
            if let Ok(folder) = fs::read_dir(tests.join(&suite)) {
                files.extend(folder.map(|entry| entry.unwrap().path()));
            }
            let traces_all = files.iter().any(|file| file.is_file() && has(file));
            assert!(
                !traces_all || ALONE.contains(&suite.as_str()),
                "{suite} traces the whole machine, and must be in ALONE"
            );
        }
    }
}
