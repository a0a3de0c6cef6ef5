//! Tests of the memory map, with a program that fragments its heap in a known way, and with real programs.

use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Heaptrace, MINUTE, c, cpp_linked, ready_pid, require_tool, run, until,
};
use serde_json::Value;

/// The pages that one function's blocks keep, and the bytes of the blocks that are held and never touched.
const PAGES: u64 = 3000;
const HELD: u64 = 4 << 20;
const RESERVED: u64 = 8 << 20;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// The site of a function.
fn site<'v>(sites: &'v Value, function: &str) -> Result<&'v Value> {
    let is_in = |site: &&Value| {
        let frames = site["stack"].as_array().into_iter().flatten();
        frames
            .into_iter()
            .any(|frame| frame["function"] == function)
    };
    let mut sites = sites.as_array().into_iter().flatten();
    sites.find(is_in).context("no such site")
}

/// Check that resident memory adds up to what the kernel counts, that the function whose blocks are alone on their pages is named first
/// with the bytes that it keeps, that memory that was never touched is not resident, and that text and picture name the function, too.
#[test]
fn fragmentation_is_explained() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut target = Child::spawn(&mut c("fragments")?.command())?;
    let pid = ready_pid(&target.line()?)?;
    let pid_text = pid.to_string();
    let mut tracer = here.start_record(&["--pid", &pid_text, "--exact", "--blocks"])?;
    here.wait_attached(&mut tracer, pid)?;
    target.go()?;
    ensure!(target.line()?.contains("step"), "no step");
    tracer.signal(libc::SIGINT)?;
    here.finish(tracer)?.report.check_nothing_lost()?;
    target.go()?;
    target.wait()?.success()?;

    let data = here.data();
    let data = data.to_str().context("an odd path")?;
    let json = here.run(&["map", data, "--format", "json"])?.success()?;
    let json: Value = serde_json::from_str(&json.stdout)?;
    let map = &json["processes"][0];
    assert_eq!(number(&map["pid"]), u64::from(pid));
    let (sum, resident) = (number(&map["sum_bytes"]), number(&map["resident_bytes"]));
    assert!(sum.abs_diff(resident) * 50 <= resident, "{sum} {resident}");
    let first = &map["sites"][0];
    assert!(
        std::ptr::eq(first, site(&map["sites"], "keep_one")?),
        "{first}"
    );
    let pinned = number(&first["pinned_bytes"]);
    // A block of 100 bytes has 112 of a page; those at the ends of the heap share theirs with others.
    let expected = PAGES * (4096 - 112);
    assert!(
        pinned.abs_diff(expected) * 20 <= expected,
        "{pinned} {expected}"
    );
    assert_eq!(number(&first["blocks"]), PAGES);
    let held = site(&map["sites"], "hold")?;
    assert_eq!(number(&held["resident_bytes"]), HELD);
    let reserved = site(&map["sites"], "reserve")?;
    assert!(
        number(&reserved["untouched_bytes"]) + (2 << 20) + 4096 >= RESERVED,
        "{reserved}"
    );

    let text = here.run(&["map", data])?.success()?.stdout;
    let pins = text
        .split_once("Keep nearly empty pages")
        .context("no list")?
        .1;
    let title = pins.lines().find(|line| line.contains("1. "));
    assert!(title.is_some_and(|it| it.contains("keep_one")), "{text}");
    let picture = here.run(&["map", data, "--format", "svg", "-o", "-"])?;
    let picture = picture.success()?.stdout;
    assert!(picture.contains("keep_one") && picture.contains("[heap]"));
    assert!(picture.ends_with("</svg>\n"));
    let other = here.run(&["map", data, "--pid", "1"])?.exits(1)?;
    assert!(other.stderr.contains(&pid_text), "{}", other.stderr);
    Ok(())
}

/// Fails unless the rows of the largest process add up to within 2 % of what the kernel counts, and name live blocks.
fn adds_up(here: &Heaptrace) -> Result<()> {
    let json = here.run(&["map", "--format", "json"])?.success()?;
    let json: Value = serde_json::from_str(&json.stdout)?;
    let map = &json["processes"][0];
    let (sum, resident) = (number(&map["sum_bytes"]), number(&map["resident_bytes"]));
    ensure!(sum.abs_diff(resident) * 50 <= resident, "{sum} {resident}");
    let live = number(&map["live"]["resident_bytes"]);
    ensure!(live > 500_000 && live < sum, "{live} of {sum}");
    Ok(())
}

/// Starts to record the blocks of a process.
fn start(here: &Heaptrace, target: &Child) -> Result<Child> {
    let pid = target.pid().to_string();
    let mut tracer = here.start_record(&["--pid", &pid, "--exact", "--blocks"])?;
    here.wait_attached(&mut tracer, target.pid())?;
    Ok(tracer)
}

/// Check that the memory of Python, of a C++ program with containers and of redis's server, which uses jemalloc, adds up.
#[test]
fn memory_of_real_programs_adds_up() -> Result<()> {
    let script = "import json, sys\nsys.stdin.readline()\n\
                  kept = [json.loads('{\"a\": [1, 2.5, \"x\"]}') for _ in range(9000)]\n\
                  print('ready', flush=True)\nsys.stdin.read()";
    let holds = cpp_linked("holds", "holds", &["-O2"])?;
    let mut in_python = Command::new("/usr/bin/python3");
    // Its own allocator would hide the blocks.
    in_python.args(["-c", script]).env("PYTHONMALLOC", "malloc");
    for mut command in [in_python, holds.command()] {
        let here = Heaptrace::tracing()?;
        let mut target = Child::spawn(&mut command)?;
        let tracer = start(&here, &target)?;
        target.go()?;
        ensure!(target.line()? == "ready", "{command:?}");
        tracer.signal(libc::SIGINT)?;
        here.finish(tracer)?.report.check_nothing_lost()?;
        adds_up(&here).with_context(|| format!("{command:?}"))?;
        target.wait()?.success()?;
    }

    let here = Heaptrace::tracing()?;
    // The server's program is installed under this name, too. Its behaviour depends on the name by which it is called.
    let server = here.path("redis-server");
    symlink(require_tool("redis-check-rdb", "redis-tools")?, &server)?;
    let socket = here.path("socket");
    let mut command = Command::new(&server);
    command.args(["--port", "0", "--save", "", "--unixsocket"]);
    let target = Child::spawn(command.arg(&socket))?;
    until("redis-server's socket", MINUTE, || Ok(socket.exists()))?;
    let tracer = start(&here, &target)?;
    let client = |tool: &str, arguments: &str| -> Result<()> {
        let mut command = Command::new(require_tool(tool, "redis-tools")?);
        command.arg("-s").arg(&socket).args(arguments.split(' '));
        run(&mut command)?.success().map(drop)
    };
    client("redis-benchmark", "-q -n 5000 -d 300 -r 100000 -t set")?;
    tracer.signal(libc::SIGINT)?;
    here.finish(tracer)?.report.check_nothing_lost()?;
    // The connection ends without an answer.
    let _ = client("redis-cli", "shutdown nosave");
    target.wait()?;
    adds_up(&here)
}
