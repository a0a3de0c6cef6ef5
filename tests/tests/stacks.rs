//! Tests of complete stacks from programs without frame pointers, by unwind information alone.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Compiler, Fixture, Heaptrace, MINUTE, Report, Site, c, c_optimized, c_plugin, cpp_optimized,
    require_tool, run, rust_optimized, until,
};

/// The requested size by which a stack is found, and functions that must be in it, from the innermost outward.
type Expected = (u64, &'static [&'static str]);

/// The stacks of `frames.c`: every kind of frame in C.
const FRAMES: [Expected; 12] = [
    (1001, &["leaf", "three", "two", "one", "main", "_start"]),
    (1002, &["leaf", "with_alloca", "main", "_start"]),
    (1003, &["leaf", "with_large_frame", "main", "_start"]),
    (
        1004,
        &["leaf", "comparison", "with_callback", "main", "_start"],
    ),
    (1005, &["leaf", "with_realigned_frame", "main", "_start"]),
    (
        1006,
        &["leaf", "on_signal", "with_signal", "main", "_start"],
    ),
    (1007, &["leaf", "in_thread", "start_thread"]),
    (
        1008,
        &[
            "leaf",
            "never_returns",
            "calls_what_never_returns",
            "main",
            "_start",
        ],
    ),
    (1010, &["leaf", "saves_oddly", "main", "_start"]),
    (1011, &["leaf", "realigns_oddly", "main", "_start"]),
    (1012, &["leaf", "goes_and_comes", "main", "_start"]),
    (
        1013,
        &["leaf", "with_huge_frame", "in_large_thread", "start_thread"],
    ),
];

/// The stacks of `contexts.c`: coroutines. Some libraries have no name for the code that the function returns to.
const CONTEXTS: [(Expected, usize); 5] = [
    ((5001, &["leaf", "work", "in_context"]), 4),
    ((5002, &["leaf", "work", "in_context_with_successor"]), 4),
    ((5003, &["leaf", "work", "as_boost_does"]), 4),
    ((5004, &["leaf", "work", "above_nothing"]), 3),
    ((5005, &["leaf", "work", "above_a_function", "crash"]), 4),
];

/// The stacks of `throws.cpp`. The first size includes 128 bytes of the C++ runtime.
const EXCEPTIONS: [Expected; 5] = [
    (
        3129,
        &[
            "__cxa_allocate_exception",
            "throwing",
            "throwing",
            "throwing",
            "throwing",
            "rethrowing",
            "main",
            "_start",
        ],
    ),
    (2002, &["leaf", "guard", "rethrowing", "main", "_start"]),
    (2003, &["leaf", "rethrowing", "main", "_start"]),
    (2004, &["leaf", "main", "_start"]),
    (2005, &["new", "new_in_function", "main", "_start"]),
];

/// The stacks of `frames.rs`.
const RUST: [Expected; 5] = [
    (4001, &["leaf", "area", "by_trait", "main", "_start"]),
    (4002, &["leaf", "by_sort", "main", "_start"]),
    (
        4003,
        &[
            "leaf",
            "by_recursion",
            "by_recursion",
            "by_recursion",
            "main",
            "_start",
        ],
    ),
    (4004, &["leaf", "by_panic", "main", "_start"]),
    (4005, &["leaf", "in_thread", "start_thread"]),
];

/// The site that allocated blocks of a size.
fn site(report: &Report, size: u64) -> Result<&Site> {
    let found = report.sites.iter().find(|site| {
        let totals = &site.totals;
        totals.allocations > 0 && totals.allocated_bytes == size * totals.allocations
    });
    found.with_context(|| format!("no site of blocks of {size} bytes"))
}

/// The functions of a site, from the innermost outward.
fn functions(site: &Site) -> Vec<&str> {
    let frames = site.stack.iter();
    frames
        .map(|frame| frame.function.as_deref().unwrap_or_default())
        .collect()
}

/// Fails unless the stack of a size is complete and has the functions in their order.
fn has_whole_stack(report: &Report, (size, expected): Expected) -> Result<()> {
    let site = site(report, size)?;
    let found = functions(site);
    let mut rest = site.stack.iter();
    for function in expected {
        ensure!(
            rest.any(|frame| frame.is(function)),
            "{size} bytes: no {function} in its place in {found:?}"
        );
    }
    ensure!(site.stack_end == "complete", "{size} bytes: {found:?}");
    Ok(())
}

fn record(fixture: Fixture) -> Result<Report> {
    Ok(Heaptrace::tracing()?.record_all(&[fixture])?.report)
}

/// Check that the stacks of coroutines are complete and end where they began, with and without frame pointers, also if the
/// last walk of the thread found the same frames.
#[test]
fn coroutines_end_where_they_began() -> Result<()> {
    let optimized = Compiler::all().map(|compiler| c_optimized("contexts", compiler, &[]));
    for fixture in optimized.chain([c("contexts")]) {
        let fixture = fixture?;
        let name = fixture.name();
        let report = record(fixture)?;
        for (expected, frames) in CONTEXTS {
            has_whole_stack(&report, expected).with_context(|| name.clone())?;
            let (size, _) = expected;
            for site in report.sites.iter().filter(|it| {
                it.totals.allocations > 0
                    && it.totals.allocated_bytes == size * it.totals.allocations
            }) {
                assert_eq!(site.stack.len(), frames, "{name}: {:?}", functions(site));
            }
        }
    }
    Ok(())
}

/// Check that stacks through every kind of frame are complete, with each compiler at every level of optimization, and
/// that a stack that is too deep is marked as truncated, and one with a frame that is too large as incomplete.
#[test]
fn every_kind_of_frame_is_unwound() -> Result<()> {
    for compiler in Compiler::all() {
        let report = record(c_optimized("frames", compiler, &[])?)?;
        for expected in FRAMES {
            has_whole_stack(&report, expected).with_context(|| format!("{compiler:?}"))?;
        }
        let deep = site(&report, 1009)?;
        assert_eq!(deep.stack_end, "truncated", "{compiler:?}");
        assert_eq!(deep.stack.len(), 128, "{compiler:?}");
        assert!(
            functions(deep)[1..].iter().all(|it| *it == "recursion"),
            "{compiler:?}"
        );
        assert_eq!(report.quality.stacks_truncated, 1, "{compiler:?}");
        let large = site(&report, 1014)?;
        assert_eq!(large.stack_end, "broken", "{compiler:?}");
        assert_eq!(
            functions(large),
            ["leaf", "takes_more_than_fits"],
            "{compiler:?}"
        );
        assert_eq!(report.quality.stacks_broken, 1, "{compiler:?}");
    }
    Ok(())
}

/// Check that each of 64 similar call paths has its own stack, after every other one. They differ in one return address
/// or frame pointer, and the walk cache must not mistake one for another.
#[test]
fn similar_stacks_are_distinguished() -> Result<()> {
    const DEPTHS: [&str; 6] = ["first", "second", "third", "fourth", "fifth", "sixth"];
    for name in ["gcc", "clang"] {
        let compiler = Compiler { name, level: "-O2" };
        let report = record(c_optimized("twins", compiler, &[])?)?;
        assert_eq!(report.quality.stacks_broken, 0, "{compiler:?}");
        for way in 0..64 {
            let site = site(&report, 1000 + way).with_context(|| format!("{compiler:?}"))?;
            assert_eq!(site.totals.allocations, 100, "{compiler:?}, way {way}");
            let sides = DEPTHS.iter().enumerate().map(|(depth, name)| {
                let side = ["left", "right"][(way >> depth & 1) as usize];
                format!("{name}_{side}")
            });
            let mut expected: Vec<String> = sides.chain(["leaf".to_owned()]).collect();
            expected.reverse();
            expected.push("visit".to_owned());
            assert_eq!(functions(site)[..8], expected, "{compiler:?}, way {way}");
        }
    }
    Ok(())
}

/// Check that stacks are complete where an exception is created, in destructors that run during its unwinding, where it
/// is caught, and in `operator new`, which has no frame pointer.
#[test]
fn exceptions_have_complete_stacks() -> Result<()> {
    for compiler in Compiler::all() {
        let report = record(cpp_optimized("throws", compiler)?)?;
        for expected in EXCEPTIONS {
            has_whole_stack(&report, expected).with_context(|| format!("{compiler:?}"))?;
        }
        // All four calls have this size; the innermost has the three others above it.
        let passed = report.sites.iter().filter(|site| {
            site.totals.allocations == 1
                && site.totals.allocated_bytes == 2001
                && site.stack_end == "complete"
                && site.has("rethrowing")
        });
        assert_eq!(passed.count(), 4, "{compiler:?}");
        assert_eq!(report.quality.stacks_broken, 0, "{compiler:?}");
    }
    Ok(())
}

/// Check that a release build of Rust has complete stacks: through a trait's function, a closure in the standard
/// library's sort, a panic, and in a thread.
#[test]
fn rust_has_complete_stacks() -> Result<()> {
    let report = record(rust_optimized("frames")?)?;
    for expected in RUST {
        has_whole_stack(&report, expected)?;
    }
    assert_eq!(report.quality.stacks_broken, 0);
    Ok(())
}

/// Check that a callback from a library loaded by `dlopen` has a complete stack, once the agent has read the library.
#[test]
fn plugins_have_complete_stacks() -> Result<()> {
    let (program, plugin) = (c("plugged")?, c_plugin("plugin")?);
    let report = Heaptrace::tracing()?.record_all(&[program, plugin])?.report;
    let expected = &[
        "called_back",
        "plugin_inner",
        "plugin_run",
        "main",
        "_start",
    ];
    has_whole_stack(&report, (1002, expected))?;
    assert_ne!(site(&report, 1001)?.stack_end, "truncated");
    Ok(())
}

/// Check that stacks are complete through the kernel's vDSO, when a signal interrupts it, and that its frames are named.
#[test]
fn the_vdso_has_complete_stacks() -> Result<()> {
    let compiler = Compiler {
        name: "gcc",
        level: "-O2",
    };
    let report = record(c_optimized("vdso", compiler, &[])?)?;
    assert_eq!(report.quality.stacks_broken, 0, "{:?}", report.sites);
    let through = report.sites.iter().filter(|site| {
        let frame = site.stack.iter().find(|frame| {
            frame.module.as_deref() == Some("[vdso]")
                && frame
                    .function
                    .as_deref()
                    .is_some_and(|it| it.contains("clock_gettime"))
        });
        frame.is_some() && site.has("on_timer") && site.has("look_at_the_clock")
    });
    let samples: u64 = through.map(|site| site.totals.allocations).sum();
    println!(
        "{samples} of {} stacks lead through the vDSO",
        report.quality.samples
    );
    assert!(samples >= 10, "{samples}: {:?}", report.sites);
    Ok(())
}

/// Check that stacks are complete while other threads map and unmap memory without a pause. The kernel can't look up
/// mappings then. (Once, every tenth stack was incomplete.)
#[test]
fn changing_mappings_keep_stacks_complete() -> Result<()> {
    let compiler = Compiler {
        name: "gcc",
        level: "-O2",
    };
    let report = record(c_optimized("remaps", compiler, &[])?)?;
    let (whole, all) = (report.quality.stacks_complete, report.quality.samples);
    println!("{whole} of {all} stacks are complete");
    assert!(
        all >= 40_000 && (all - whole) * 1000 <= all,
        "{:?}",
        report.quality
    );
    assert!(report.within("middle").allocations >= 40_000);
    Ok(())
}

/// Check that at least 99 of 100 stacks of a distribution's stripped programs are complete. Prints the figure for each.
#[test]
fn stripped_programs_have_complete_stacks() -> Result<()> {
    let compiler = Command::new("cc").arg("-print-prog-name=cc1").output()?;
    let compiler = String::from_utf8(compiler.stdout)?.trim().to_owned();
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("a.c");
    let functions = (0..200).map(|it| format!("int f{it}(int a) {{ return a * {it} + 1; }}\n"));
    std::fs::write(&source, functions.collect::<String>())?;
    let source = source.display().to_string();
    let json = "[range(3000)|{a:., b:\"x\"}]|map(.a)|add";
    let sql =
        "create table t(a,b); insert into t values(1,'x'),(2,'y'); select * from t order by b;";
    let perl = "my @a = map { { a => $_ } } 1..2000; print scalar(@a), \"\\n\"";
    let python = "import json; print(len(json.dumps(list(range(1000)))))";
    let programs: [&[&str]; 6] = [
        &["jq", "-n", json],
        &["sqlite3", ":memory:", sql],
        &["git", "--no-pager", "help", "-a"],
        &["perl", "-e", perl],
        &["/usr/bin/python3", "-c", python],
        &[&compiler, "-quiet", &source, "-o", "/dev/null"],
    ];
    for program in programs {
        let report = Heaptrace::tracing()?.record_all(program)?.report;
        are_whole(program[0], &report)?;
    }
    Ok(())
}

/// Fails unless 99 of 100 stacks of a program are complete, and prints how many are. A library that a program loads while
/// it runs has no table for a time that the scheduler decides. The stacks through it in that time don't count, but they
/// must be few.
fn are_whole(program: &str, report: &Report) -> Result<()> {
    let (whole, all) = (report.quality.stacks_complete, report.quality.samples);
    let early = report.quality.noted.get("stack_broken_no_table_yet");
    let early = early.copied().unwrap_or(0);
    let percent = 100.0 * whole as f64 / (all - early) as f64;
    println!(
        "{program:<20} {whole} of {all} stacks are complete, {early} came before a table: {percent:.2} %"
    );
    ensure!(all > early && percent >= 99.0, "{program}: {percent:.2} %");
    ensure!(
        early * 10 <= all,
        "{program}: {early} of {all} came before a table"
    );
    Ok(())
}

/// Check that at least 99 of 100 stacks of redis's server, which uses jemalloc, are complete under its own benchmark.
#[test]
fn redis_has_complete_stacks() -> Result<()> {
    let here = Heaptrace::tracing()?;
    // The server's program is installed under this name, too. Its behaviour depends on the name by which it is called.
    let program = require_tool("redis-check-rdb", "redis-tools")?;
    let server = here.path("redis-server");
    std::os::unix::fs::symlink(program, &server)?;
    let socket = here.path("socket");
    let settings = "--port 0 --daemonize no --save";
    let mut command: Vec<&OsStr> = vec![OsStr::new("--"), server.as_os_str()];
    command.extend(settings.split(' ').map(OsStr::new));
    command.extend([
        OsStr::new(""),
        OsStr::new("--unixsocket"),
        socket.as_os_str(),
    ]);
    let recorder = here.start_record(&command)?;
    until("redis-server's socket", MINUTE, || Ok(socket.exists()))?;
    let client = |tool: &str, arguments: &str| -> Result<()> {
        let mut command = Command::new(require_tool(tool, "redis-tools")?);
        command.arg("-s").arg(&socket).args(arguments.split(' '));
        run(&mut command)?.success().map(drop)
    };
    client(
        "redis-benchmark",
        "-q -n 500 -c 5 -t set,lpush,sadd,hset,zadd,lrange_100",
    )?;
    client("redis-cli", "config set maxmemory 100mb")?;
    // The connection ends without an answer.
    let _ = client("redis-cli", "shutdown nosave");
    let report = here.finish(recorder)?.report;
    report.check_nothing_lost()?;
    let samples = report.quality.samples;
    assert!(samples > 3000, "{samples} allocations: is jemalloc traced?");
    are_whole("redis-server", &report)
}

/// Check that a program that a child starts later gets its tables while it runs: some of its stacks are complete.
#[test]
fn later_programs_get_their_tables() -> Result<()> {
    let script = "/usr/bin/python3 -c 'print(sum(len(str(i)) for i in range(200000)))'; true";
    let report = Heaptrace::tracing()?
        .record_all(&["sh", "-c", script])?
        .report;
    let whole = report.sites.iter().filter(|site| {
        let functions = functions(site);
        site.stack_end == "complete" && functions.iter().any(|it| it.starts_with("Py"))
    });
    assert!(whole.count() > 0, "{:?}", report.quality);
    Ok(())
}

/// Check that the stacks of a Rust program without optimization, with link-time optimization and at fixed addresses are
/// complete, and that no call is abandoned. (Its library calls the C library's functions through registers. So its own
/// functions were probed too, and the walk ended at the return probe.)
#[test]
fn unoptimized_rust_has_complete_stacks() -> Result<()> {
    let source = "
        #[inline(never)]
        fn grown() -> Vec<u64> {
            let mut all = vec![0; 10];
            all.extend(0..1000);
            all.push(1);
            all
        }
        fn main() {
            for _ in 0..100 {
                std::hint::black_box(grown());
            }
        }";
    let here = Heaptrace::tracing()?;
    let path = here.path("grown.rs");
    std::fs::write(&path, source)?;
    let program = here.path("grown");
    let mut command = Command::new("rustc");
    command.args(["-g", "-Copt-level=0", "-Clto=fat"]);
    command.args(["-Crelocation-model=static", "-o"]);
    run(command.arg(&program).arg(&path))?.success()?;
    let report = here.record_all(&[&program])?.report;
    let quality = &report.quality;
    assert_eq!(quality.noted["abandoned_calls"], 0, "{quality:?}");
    assert_eq!(quality.stacks_broken, 0, "{quality:?}");
    assert!(report.within("grown").allocations >= 200, "{quality:?}");
    Ok(())
}
