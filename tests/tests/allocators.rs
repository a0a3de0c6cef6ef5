//! Tests of allocators other than glibc's: preloaded, linked, and built into the program.
//!
//! Each must be found, and its counts must be exact.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Fixture, Heaptrace, MINUTE, Recording, STATIC_JEMALLOC, c, c_linked, cpp, cpp_linked,
    ready_pid, require_tool, rust_crate, stripped, until,
};

const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4";
const MIMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0";

/// Traces a command that reports its own counts. The report must have the same counts, and must name the allocator
/// with its kind and the functions that were called.
fn exactly(command: &[&OsStr], kind: &str, hooks: &[&str]) -> Result<Recording> {
    let recording = Heaptrace::tracing()?.record_all(command)?;
    // The role is "wrong" if an exception got lost.
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(Some(truth.pid)))?;
    let images = recording.report.images(truth.pid);
    let image = images.last().context("the process is not in the report")?;
    let of_kind: Vec<_> = image
        .allocators
        .iter()
        .filter(|allocator| allocator.kind == kind)
        .collect();
    ensure!(of_kind.len() == 1, "{kind}: {:?}", image.allocators);
    for hook in hooks {
        ensure!(
            of_kind[0].hooks.iter().any(|name| name == hook),
            "{hook} is not hooked in {of_kind:?}"
        );
    }
    Ok(recording)
}

fn preloaded(
    library: &str,
    fixture: &Fixture,
    arguments: &[&str],
    kind: &str,
) -> Result<Recording> {
    let preload = format!("LD_PRELOAD={library}");
    let mut command = vec![
        OsStr::new("env"),
        OsStr::new(&preload),
        fixture.path.as_os_str(),
    ];
    command.extend(arguments.iter().map(OsStr::new));
    let recording = exactly(&command, kind, &["malloc", "free", "posix_memalign"])?;
    assert_eq!(recording.report.quality.untracked_frees, 0);
    Ok(recording)
}

/// Traces the malloc family without `pvalloc`, which jemalloc leaves to glibc.
fn malloc_family(library: &str, kind: &str) -> Result<()> {
    preloaded(library, &c("hooks")?, &["no-pvalloc"], kind)?;
    Ok(())
}

/// Check that calls of a preloaded jemalloc's malloc family are counted exactly.
#[test]
fn preloaded_jemalloc_is_counted() -> Result<()> {
    malloc_family(JEMALLOC, "jemalloc")
}

/// Check that calls of a preloaded tcmalloc's malloc family are counted exactly.
#[test]
fn preloaded_tcmalloc_is_counted() -> Result<()> {
    malloc_family(TCMALLOC, "tcmalloc")
}

/// Check that calls of a preloaded mimalloc's malloc family are counted exactly.
#[test]
fn preloaded_mimalloc_is_counted() -> Result<()> {
    malloc_family(MIMALLOC, "mimalloc")
}

fn operators(library: &str, kind: &str, arguments: &[&str]) -> Result<()> {
    let recording = preloaded(library, &cpp("operators")?, arguments, kind)?;
    let failed = if arguments.is_empty() { 3 * 8 } else { 0 };
    assert_eq!(recording.report.quality.failed_allocations, failed);
    Ok(())
}

/// Check that all of jemalloc's C++ operators are counted exactly, and that the program still catches the
/// `std::bad_alloc` that they throw.
#[test]
fn jemalloc_operators_throw() -> Result<()> {
    operators(JEMALLOC, "jemalloc", &[])
}

/// Check that all of tcmalloc's C++ operators are counted exactly, and that the program still catches the
/// `std::bad_alloc` that they throw.
#[test]
fn tcmalloc_operators_throw() -> Result<()> {
    operators(TCMALLOC, "tcmalloc", &[])
}

/// Check that all of mimalloc's C++ operators are counted exactly. Debian's mimalloc is built as C, and aborts when
/// it should throw.
#[test]
fn mimalloc_operators_count() -> Result<()> {
    operators(MIMALLOC, "mimalloc", &["no-refusals"])
}

/// Check that a C++ program linked with tcmalloc is counted exactly.
#[test]
fn linked_tcmalloc_is_counted() -> Result<()> {
    let options = ["-Wl,--no-as-needed", "-ltcmalloc"];
    let fixture = cpp_linked("operators", "operators-tcmalloc", &options)?;
    exactly(&[fixture.as_ref()], "tcmalloc", &["_Znwm", "_ZdlPv"])?;
    Ok(())
}

/// Check that tcmalloc is found in a program that contains it.
#[test]
fn static_tcmalloc_is_found() -> Result<()> {
    let options = [
        "-Wl,--whole-archive",
        "-l:libtcmalloc_minimal.a",
        "-Wl,--no-whole-archive",
    ];
    let fixture = cpp_linked("operators", "operators-tcmalloc-static", &options)?;
    exactly(&[fixture.as_ref()], "tcmalloc", &["_Znwm", "_ZdlPv"])?;
    Ok(())
}

/// Check that jemalloc's functions outside of the malloc family are counted exactly.
#[test]
fn jemalloc_own_functions_are_counted() -> Result<()> {
    let fixture = c_linked("jemalloc_api", "jemalloc_api", "cc", &["-ljemalloc"])?;
    let hooks = ["mallocx", "rallocx", "xallocx", "dallocx", "sdallocx"];
    exactly(&[fixture.as_ref()], "jemalloc", &hooks)?;
    Ok(())
}

/// Check that jemalloc is found and named in a program that contains it, with and without a symbol table.
#[test]
fn static_jemalloc_is_found() -> Result<()> {
    let fixture = c_linked("hooks", "hooks-jemalloc", "cc", &STATIC_JEMALLOC)?;
    let command = [fixture.as_ref(), OsStr::new("no-pvalloc")];
    let hooks = ["malloc", "calloc", "realloc", "free"];
    exactly(&command, "jemalloc", &hooks)?;
    let stripped = stripped(&fixture)?;
    let command = [stripped.as_ref(), OsStr::new("no-pvalloc")];
    let recording = Heaptrace::tracing()?.record_all(&command)?;
    // Without names, the `truth_` sites can't be selected, but nothing else allocates.
    recording.truth("main")?.matches(&recording.report.totals)?;
    let process = recording.report.processes.first();
    let process = process.context("no process in the report")?;
    ensure!(
        process.allocators.iter().any(|it| it.kind == "jemalloc"),
        "{process:?}"
    );
    Ok(())
}

/// Check that mimalloc's own functions are counted exactly, including those of heaps.
#[test]
fn mimalloc_own_functions_are_counted() -> Result<()> {
    let fixture = c_linked("mimalloc_api", "mimalloc_api", "cc", &["-lmimalloc"])?;
    let hooks = ["mi_malloc", "mi_heap_malloc", "mi_free", "mi_new_realloc"];
    exactly(&[fixture.as_ref()], "mimalloc", &hooks)?;
    Ok(())
}

/// Check that a program on musl is counted exactly, with the shared library and linked statically.
#[test]
fn musl_is_counted() -> Result<()> {
    for (output, options) in [("hooks-musl", &[][..]), ("hooks-musl-static", &["-static"])] {
        let fixture = c_linked("hooks", output, "musl-gcc", options)?;
        let command = [fixture.as_ref(), OsStr::new("no-pvalloc")];
        let recording = exactly(&command, "musl", &["malloc", "calloc", "realloc", "free"])?;
        assert_eq!(recording.report.quality.untracked_frees, 0);
    }
    Ok(())
}

/// Check that glibc is found in a statically linked program, at a fixed address and at a random one.
#[test]
fn static_glibc_is_found() -> Result<()> {
    for (output, option) in [("hooks-static", "-static"), ("hooks-pie", "-static-pie")] {
        let fixture = c_linked("hooks", output, "cc", &[option])?;
        let hooks = ["malloc", "pvalloc", "free"];
        exactly(&[fixture.as_ref()], "glibc", &hooks)?;
    }
    Ok(())
}

/// Check that an allocator whose functions can't be found is named with the reason.
#[test]
fn an_allocator_without_symbols_is_named() -> Result<()> {
    let fixture = stripped(&c_linked("hooks", "hooks-static", "cc", &["-static"])?)?;
    let here = Heaptrace::tracing()?;
    let recording = here.record(&[], &[&fixture])?;
    let unprobed = &recording.report.quality.unprobed;
    let is_said =
        |text: &String| text.contains("glibc is linked into it") && text.contains("symbols");
    ensure!(unprobed.iter().any(is_said), "{unprobed:?}");
    assert_eq!(recording.report.totals.allocations, 0);
    Ok(())
}

/// Check that Rust programs on jemalloc, mimalloc, rpmalloc and snmalloc, and on an allocator of their own,
/// are counted exactly.
#[test]
fn rust_allocators_are_counted() -> Result<()> {
    for (name, kind) in [
        ("rust-jemalloc", "jemalloc"),
        ("rust-mimalloc", "mimalloc"),
        ("rust-rpmalloc", "rpmalloc"),
        ("rust-snmalloc", "snmalloc"),
        ("rust-arena", "rust"),
    ] {
        let program = rust_crate(name)?;
        exactly(&[program.as_ref()], kind, &[])?;
    }
    Ok(())
}

/// Check that the user can name an allocator by its file and by the prefix of its functions' names.
#[test]
fn an_allocator_can_be_named() -> Result<()> {
    let fixture = c("prefixed")?;
    let option = format!("{}:my_", fixture.path.display());
    let here = Heaptrace::tracing()?;
    let recording = here.record(&["--allocator", &option], &[&fixture])?;
    let truth = recording.truth("main")?;
    truth.matches(&recording.report.truth(Some(truth.pid)))?;
    ensure!(truth.allocations > 0, "the fixture allocates nothing");
    Ok(())
}

/// Check that an allocator which is first loaded by a child is probed then, for the child's own children, too.
#[test]
fn a_late_allocator_is_probed() -> Result<()> {
    let fixture = c_linked("late", "late-static", "cc", &["-static"])?;
    let script = format!("{}; true", fixture.path.display());
    let recording = Heaptrace::tracing()?.record_all(&["sh", "-c", &script])?;
    assert_eq!(recording.truths.len(), 2);
    for truth in &recording.truths {
        truth.matches(&recording.report.truth(Some(truth.pid)))?;
        let process = recording.report.process(truth.pid)?;
        let path = &process.allocators.first().context("no allocator")?.path;
        ensure!(path.ends_with("/late-static"), "{process:?}");
    }
    Ok(())
}

/// Check that `doctor --pid` names the allocators of a process, or says why none can be traced; and the files whose calls
/// could have a fast path, or why none can.
#[test]
fn the_doctor_names_allocators() -> Result<()> {
    // Each has been loaded when the doctor looks, and runs until its handle is dropped.
    let started = |fixture: &Fixture| -> Result<Child> {
        let mut child = Child::spawn(&mut fixture.command())?;
        ready_pid(&child.line()?)?;
        Ok(child)
    };
    let here = Heaptrace::tracing()?;
    let seen = c_linked("forever", "forever-static", "cc", &["-static"])?;
    let unseen = stripped(&seen)?;
    let doctor = |child: &Child| {
        let pid = child.pid().to_string();
        here.run(&["doctor", "--pid", &pid])
    };
    let found = doctor(&started(&seen)?)?;
    assert_eq!(found.code(), 0, "{}", found.stdout);
    let is_named =
        |line: &str| line.starts_with("  glibc in /") && line.contains("/forever-static,");
    ensure!(found.stdout.lines().any(is_named), "{}", found.stdout);
    ensure!(
        found.stdout.contains("\n    malloc  0x"),
        "{}",
        found.stdout
    );
    let section = "\n  fast path (--fast): ";
    let fast = |printed: &str| {
        let (_, rest) = printed.split_once(section)?;
        rest.lines().next().map(str::to_owned)
    };
    let refusal = fast(&found.stdout).context("no fast path")?;
    ensure!(
        refusal.starts_with("not possible: it is statically linked"),
        "{refusal}"
    );
    // Its slots are bound when it starts.
    let bound = c_linked("forever", "forever-bound", "cc", &["-Wl,-z,now"])?;
    let dynamic = doctor(&started(&bound)?)?.stdout;
    ensure!(fast(&dynamic).as_deref() == Some("possible"), "{dynamic}");
    let has_slots = |line: &str| line.starts_with("      ") && line.contains("/forever");
    ensure!(dynamic.lines().any(has_slots), "{dynamic}");
    let others = "always hit their probe: valloc, pvalloc";
    ensure!(dynamic.contains(others), "{dynamic}");
    let refused = doctor(&started(&unseen)?)?;
    assert_eq!(refused.code(), 1, "{}", refused.stdout);
    ensure!(
        refused
            .stdout
            .contains("no symbols to find its functions by"),
        "{}",
        refused.stdout
    );
    Ok(())
}

/// Check that redis, which is on jemalloc, has named sites under load.
#[test]
fn redis_has_named_sites() -> Result<()> {
    require_tool("redis-benchmark", "redis-tools")?;
    // The server's program: its behaviour depends on the name by which it is called.
    let program = require_tool("redis-check-rdb", "redis-tools")?;
    let here = Heaptrace::tracing()?;
    let server = here.path("redis-server");
    std::os::unix::fs::symlink(program, &server)?;
    let server = server.to_str().context("a path that is no text")?;
    let socket = here.path("redis.sock");
    let socket = socket.to_str().context("a path that is no text")?;
    let words = [
        "--",
        server,
        "--port",
        "0",
        "--save",
        "",
        "--unixsocket",
        socket,
    ];
    let recorder = here.start_record(&words)?;
    until("redis to listen", MINUTE, || {
        Ok(std::path::Path::new(socket).exists())
    })?;
    let load = ["-s", socket, "-n", "2000", "-c", "4", "-t", "set,lpush"];
    heaptrace_tests::run(Command::new("redis-benchmark").args(load))?.success()?;
    heaptrace_tests::run(Command::new("redis-cli").args(["-s", socket, "shutdown", "nosave"]))?;
    let recording = finish(&here, recorder)?;
    let redis = &recording.report.processes;
    ensure!(
        redis
            .iter()
            .any(|it| it.allocators.iter().any(|it| it.kind == "jemalloc")),
        "{redis:?}"
    );
    let calls = recording.report.within("call").allocations;
    ensure!(
        calls > 1000,
        "only {calls} allocations below redis's call()"
    );
    Ok(())
}

fn finish(here: &Heaptrace, recorder: Child) -> Result<Recording> {
    let recording = here.finish(recorder)?;
    recording.report.check_nothing_lost()?;
    Ok(recording)
}
