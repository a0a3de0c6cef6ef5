//! Names of generated code, from perf maps and jitdump files, and what can be wrong with these files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, Recording, Report, Site, c, require_tool};

/// How often the fixture calls a function.
const ROUNDS: u64 = 300;

/// Removes the perf map of a process on drop.
struct MapOf(PathBuf);

impl MapOf {
    fn new(report: &Report) -> Self {
        let pid = report.processes.first().map_or(0, |process| process.pid);
        Self(PathBuf::from(format!("/tmp/perf-{pid}.map")))
    }
}

impl Drop for MapOf {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Records the fixture.
fn record(heaptrace: &Heaptrace, mode: &str, options: &[&str]) -> Result<Recording> {
    let fixture = c("generated")?;
    let command = [
        fixture.as_ref(),
        OsStr::new(mode),
        heaptrace.folder().as_os_str(),
    ];
    let recording = heaptrace.record(options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    let truth = recording.truth("main")?;
    assert_eq!(recording.report.totals.allocations, truth.allocations);
    assert_eq!(
        recording.report.totals.allocated_bytes,
        truth.allocated_bytes
    );
    Ok(recording)
}

/// The place of the function that allocates: its name, its file and its line, if it has a name as generated code.
fn generated(site: &Site) -> Option<(String, String, u32)> {
    let frame = site.stack.iter().find(|frame| frame.language == "jit")?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some((
        text(&frame.function),
        text(&frame.file),
        frame.line.unwrap_or(0),
    ))
}

/// Allocations and bytes by function.
fn by_function(report: &Report) -> BTreeMap<String, (u64, u64)> {
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for site in &report.sites {
        let name = generated(site).map_or_else(String::new, |(name, ..)| name);
        let sum = sums.entry(name).or_default();
        sum.0 += site.totals.allocations;
        sum.1 += site.totals.allocated_bytes;
    }
    sums
}

fn sums<const N: usize>(expected: [(&str, u64, u64); N]) -> BTreeMap<String, (u64, u64)> {
    let sum = |(name, count, size): (&str, u64, u64)| (name.to_owned(), (count, count * size));
    expected.into_iter().map(sum).collect()
}

/// Check that functions whose names are written before or after they run have their names and their bytes, exactly, in memory that is
/// private, shared, or mapped twice.
#[test]
fn functions_of_perf_maps_have_names() -> Result<()> {
    for (mode, second) in [
        ("before", "name with blanks"),
        ("after", "g"),
        ("shared", "name with blanks"),
        ("twice", "name with blanks"),
    ] {
        let heaptrace = Heaptrace::tracing()?;
        let recording = record(&heaptrace, mode, &[])?;
        let _map = MapOf::new(&recording.report);
        let expected = sums([("f", ROUNDS, 1000), (second, ROUNDS, 2000)]);
        assert_eq!(by_function(&recording.report), expected, "{mode}");
        assert_eq!(recording.report.quality.noted["jit_frames_unnamed"], 0);
        for site in &recording.report.sites {
            assert_eq!(site.stack_end, "complete");
            ensure!(site.has("main"), "{site:?}");
        }
    }
    Ok(())
}

/// Check that the code that V8 makes of a function several times is one function, with its file and its line.
#[test]
fn tiers_of_a_function_are_one() -> Result<()> {
    let heaptrace = Heaptrace::tracing()?;
    let recording = record(&heaptrace, "tiers", &[])?;
    let _map = MapOf::new(&recording.report);
    let places: Vec<_> = recording.report.sites.iter().map(generated).collect();
    let place = ("work".to_owned(), "/srv/app.js".to_owned(), 7);
    ensure!(
        places.iter().all(|it| *it == Some(place.clone())),
        "{places:?}"
    );
    Ok(())
}

/// Check that a function that takes the place of another one has its own bytes, also with the stack of that one.
#[test]
fn code_that_is_replaced_is_another_function() -> Result<()> {
    let heaptrace = Heaptrace::tracing()?;
    let recording = record(&heaptrace, "replaced", &[])?;
    let _map = MapOf::new(&recording.report);
    let report = &recording.report;
    let sums = by_function(report);
    let total: u64 = sums.values().map(|(count, _)| count).sum();
    assert_eq!(total, 121 * ROUNDS);
    for name in ["first", "second"] {
        let count = sums.get(name).map_or(0, |it| it.0);
        ensure!(count >= 30 * ROUNDS, "{sums:?}");
    }
    // The calls that have no other stack before.
    let own = report.sites.iter().filter(|site| site.has("call_again"));
    let own: Vec<_> = own
        .map(|site| (generated(site).map(|it| it.0), site.totals.allocations))
        .collect();
    assert_eq!(own, [(Some("second".to_owned()), ROUNDS)]);
    Ok(())
}

/// Check that functions of a jitdump file have the lines of their calls, also after they were moved.
#[test]
fn functions_of_jitdump_files_have_lines() -> Result<()> {
    let heaptrace = Heaptrace::tracing()?;
    let recording = record(&heaptrace, "jitdump", &[])?;
    let mut found = BTreeMap::<_, u64>::new();
    for site in &recording.report.sites {
        *found.entry(generated(site)).or_default() += site.totals.allocations;
    }
    let place = |name: &str, file: &str, line| Some((name.to_owned(), file.to_owned(), line));
    let expected = [
        (place("f", "used.js", 12), 2 * ROUNDS),
        (place("g", "", 0), ROUNDS),
    ];
    assert_eq!(found, BTreeMap::from(expected));
    Ok(())
}

/// Check that files which lead elsewhere, have no end, are too long, belong to another user or are damaged do no harm, and that
/// the report says that they were not read.
#[test]
fn files_that_cannot_be_trusted_do_no_harm() -> Result<()> {
    for (mode, reason) in [
        ("link", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
        ("sparse", "it has more than 256 MiB"),
        ("foreign", "it belongs to another user (user 12345)"),
        ("other_order", "it is not such a file, or is damaged"),
    ] {
        let heaptrace = Heaptrace::tracing()?;
        let recording = record(&heaptrace, mode, &[])?;
        let report = &recording.report;
        let _map = MapOf::new(report);
        assert_eq!(by_function(report), sums([("", ROUNDS, 1000)]), "{mode}");
        let unreadable = &report.quality.unreadable;
        assert_eq!(
            report.quality.noted["jit_files_refused"], 1,
            "{mode}: {unreadable:?}, {:?}",
            report.processes
        );
        assert_eq!(report.quality.noted["jit_frames_unnamed"], 1, "{mode}");
        let is_said = unreadable.iter().any(|it| it.ends_with(reason));
        ensure!(is_said, "{mode}: {unreadable:?}");
    }
    let heaptrace = Heaptrace::tracing()?;
    let recording = record(&heaptrace, "garbage", &[])?;
    let _map = MapOf::new(&recording.report);
    assert_eq!(by_function(&recording.report), sums([("f", ROUNDS, 1000)]));
    assert_eq!(recording.report.quality.noted["jit_names_broken"], 4);
    Ok(())
}

/// Check that a perf map that a process with the same id left behind is not read.
#[test]
fn older_files_are_not_read() -> Result<()> {
    let heaptrace = Heaptrace::tracing()?;
    let recording = record(&heaptrace, "none", &[])?;
    assert_eq!(by_function(&recording.report), sums([("", ROUNDS, 1000)]));
    let stale = record(&heaptrace, "stale", &[])?;
    let _map = MapOf::new(&stale.report);
    assert_eq!(by_function(&stale.report), sums([("", ROUNDS, 1000)]));
    assert_eq!(stale.report.quality.noted["jit_files_refused"], 0);
    Ok(())
}

/// Check that a process in a process namespace and with folders of its own has the names that it wrote there, under the id that
/// it has there.
#[test]
fn processes_in_containers_have_names() -> Result<()> {
    let heaptrace = Heaptrace::tracing()?;
    let fixture = c("generated")?;
    // The program may lie below the folder that is hidden.
    let script = format!(
        "exec 3<{} && mount -t tmpfs none /tmp && test $$ = 1 && cat <&3 >/tmp/generated \
         && exec 3<&- && chmod +x /tmp/generated && exec /tmp/generated before",
        fixture.path.display()
    );
    let command = ["unshare", "--pid", "--fork", "--mount", "sh", "-c", &script];
    let recording = heaptrace.record(&[], &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.truth("main")?;
    let found = by_function(&recording.report);
    let expected = sums([("f", ROUNDS, 1000), ("name with blanks", ROUNDS, 2000)]);
    for (name, amount) in expected {
        assert_eq!(found.get(&name), Some(&amount), "{found:?}");
    }
    Ok(())
}

/// Check that functions of PHP have the names that its compiler writes, though its code is in shared memory.
#[test]
fn functions_of_php_have_names() -> Result<()> {
    require_tool("php", "php-cli")?;
    let heaptrace = Heaptrace::tracing()?;
    let script = heaptrace.path("app.php");
    fs::write(&script, PHP)?;
    let options = [
        "USE_ZEND_ALLOC=0",
        "php",
        "-d",
        "opcache.enable_cli=1",
        "-d",
        "opcache.jit_buffer_size=64M",
        "-d",
        "opcache.jit=function",
        "-d",
        "opcache.jit_debug=16",
    ];
    let mut command = vec![OsStr::new("env")];
    command.extend(options.map(OsStr::new));
    command.push(script.as_os_str());
    check_keepers(&heaptrace, &command, "JIT$keep_")
}

const PHP: &str = "<?php
function keep_small(array &$kept, int $n): void {
    $kept[$n % 10] = str_repeat('a', 400000 + $n);
}
function keep_large(array &$kept, int $n): void {
    $kept[$n % 10] = str_repeat('b', 600000 + $n);
}
$kept = [];
for ($n = 0; $n < 300; $n++) {
    keep_small($kept, $n);
    keep_large($kept, $n);
}
";

/// Checks that two functions, whose names have the same beginning, have allocated 300 blocks each, with their sizes.
fn check_keepers(heaptrace: &Heaptrace, command: &[&OsStr], names: &str) -> Result<()> {
    let options = ["--exact", "--min-size", "400000", "--max-size", "900000"];
    let recording = heaptrace.record(&options, command)?;
    let _map = MapOf::new(&recording.report);
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for site in &recording.report.sites {
        let own = generated_names(site).find_map(|name| name.strip_prefix(names));
        if let Some(name) = own {
            let sum = sums.entry(name.to_owned()).or_default();
            sum.0 += site.totals.allocations;
            sum.1 += site.totals.allocated_bytes;
        }
    }
    for (name, size) in [("small", 400_000), ("large", 600_000)] {
        let (count, bytes) = sums.get(name).copied().unwrap_or_default();
        let mean = bytes / count.max(1);
        ensure!(
            count == 300 && mean.abs_diff(size) < 10_000,
            "{name}: {sums:?}"
        );
    }
    Ok(())
}

/// The names of the functions of generated code in a stack, from the innermost on.
fn generated_names(site: &Site) -> impl Iterator<Item = &str> {
    let frames = site.stack.iter().filter(|frame| frame.language == "jit");
    frames.filter_map(|frame| frame.function.as_deref())
}

/// Check that functions of JavaScript are there once where Node writes a perf map and heaptrace reads their names itself, with its own
/// probes and on the fast path.
#[test]
fn functions_with_two_names_are_there_once() -> Result<()> {
    require_tool("node", "nodejs")?;
    for options in [&["--exact"] as &[&str], &["--exact", "--fast"]] {
        let heaptrace = Heaptrace::tracing()?;
        let script = heaptrace.path("app.js");
        fs::write(&script, NODE)?;
        let command = [
            OsStr::new("node"),
            OsStr::new("--perf-basic-prof"),
            OsStr::new("--interpreted-frames-native-stack"),
            script.as_os_str(),
        ];
        let recording = heaptrace.record(options, &command)?;
        ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
        let report = &recording.report;
        report.check_nothing_lost()?;
        let _map = MapOf::new(report);
        for (function, line) in [("keepSmall", 4), ("keepLarge", 8)] {
            let found = calls_of(report, function, &script, line)?;
            ensure!(found >= 400, "{options:?}: {function} has {found}");
        }
    }
    Ok(())
}

const NODE: &str = "const kept = [];
// Each call allocates once, outside of the JavaScript heap.
function keepSmall() {
  kept[0] = Buffer.allocUnsafeSlow(400_000);
}

function keepLarge() {
  kept[1] = Buffer.allocUnsafeSlow(600_000);
}

for (let round = 0; round < 500; round++) {
  keepSmall();
  keepLarge();
}
";

/// Allocations with a function of this script once on the stack.
fn calls_of(report: &Report, function: &str, script: &Path, line: u32) -> Result<u64> {
    let script = script.to_str().context("a path that is no text")?;
    let mut calls = 0;
    for site in &report.sites {
        let is_named = |name: &str| {
            name.split([' ', ':', '*', '~', '^'])
                .any(|it| it == function)
        };
        let frames = site.stack.iter();
        let frames = frames.filter(|it| it.function.as_deref().is_some_and(is_named));
        let frames: Vec<_> = frames.collect();
        let [frame] = frames[..] else {
            ensure!(frames.is_empty(), "{frames:?}");
            continue;
        };
        let is_in_script = frame.file.as_deref().is_some_and(|it| it.ends_with(script));
        ensure!(frame.language == "javascript" && is_in_script, "{frame:?}");
        // V8 itself allocates at other lines, too: for compilers, where a function ends.
        if frame.line == Some(line) {
            calls += site.totals.allocations;
        }
    }
    Ok(calls)
}
