//! Tests of names that were not there when the recording ended, on real programs and debug files, and of the lines of sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, Report, Site, c, require_tool, run, workspace};

fn tool(name: &str, arguments: &[&Path]) -> Result<String> {
    Ok(run(Command::new(name).args(arguments))?.success()?.stdout)
}

/// A stripped program in the folder, and a folder with its debug file by build id.
fn split(here: &Heaptrace) -> Result<(PathBuf, PathBuf)> {
    let (program, whole) = (here.path("hooks"), here.path("whole"));
    fs::copy(&c("hooks")?.path, &whole)?;
    tool("strip", &[Path::new("-o"), &program, &whole])?;
    let notes = tool("readelf", &[Path::new("-n"), &program])?;
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    let (first, rest) = id.context("no build id")?.split_at(2);
    let symbols = here.path("symbols");
    let folder = symbols.join(".build-id").join(first);
    fs::create_dir_all(&folder)?;
    let debug = folder.join(format!("{rest}.debug"));
    tool("objcopy", &[Path::new("--only-keep-debug"), &whole, &debug])?;
    fs::remove_file(whole)?;
    Ok((program, symbols))
}

/// Whether a report has the fixture's functions, and whether it has their lines.
fn names(report: &Report) -> (bool, bool) {
    let mut frames = report.sites.iter().flat_map(|site| &site.stack);
    let mut has_line = |function: &str| {
        let frame = frames.find(|frame| frame.is(function));
        frame.map(|frame| frame.line.unwrap_or(0) > 0)
    };
    match has_line("truth_malloc") {
        Some(has_line) => (true, has_line),
        None => (false, false),
    }
}

/// The numbers of a data file: the totals, and those of each stack of addresses.
fn numbers(here: &Heaptrace, file: &str) -> Result<Vec<String>> {
    let ended = here.run(&["report", "--format", "json", file])?.success()?;
    let report = Report::parse(&ended.stdout)?;
    let of_site = |site: &Site| {
        let addresses: Vec<&str> = site.stack.iter().map(|it| it.address.as_str()).collect();
        format!("{:?} {addresses:?}", site.totals)
    };
    let mut numbers: Vec<String> = report.sites.iter().map(of_site).collect();
    numbers.sort();
    numbers.push(format!("{:?}", report.totals));
    Ok(numbers)
}

/// Check that a recording of a stripped program gets functions and lines from a debug file, also on a machine that does not have the
/// program, that nothing but names changes, and that a file of another build is not used.
#[test]
fn names_are_added_later() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (program, symbols) = split(&here)?;
    let recording = here.record_all(&[&program, Path::new("no-pvalloc")])?;
    assert_eq!(names(&recording.report), (false, false));
    let before = numbers(&here, "heaptrace.data")?;
    fs::remove_file(&program)?;
    let ended = here.run(&["symbolize"])?.success()?;
    ensure!(ended.stderr.contains("no names for"), "{}", ended.stderr);
    assert_eq!(names(&here.report()?), (false, false));

    let other = here.path("other");
    fs::create_dir(&other)?;
    fs::copy(&c("busy")?.path, other.join("hooks"))?;
    here.run(&["symbolize", "--debug-dir", "other"])?
        .success()?;
    assert_eq!(names(&here.report()?), (false, false));

    let symbols = symbols.to_str().context("no text")?;
    here.run(&["symbolize", "--debug-dir", symbols, "-o", "named.data"])?
        .success()?;
    assert_eq!(names(&here.report()?), (false, false));
    assert_eq!(numbers(&here, "named.data")?, before);
    here.run(&["symbolize", "--debug-dir", symbols])?
        .success()?;
    assert_eq!(names(&here.report()?), (true, true));
    assert_eq!(numbers(&here, "heaptrace.data")?, before);
    // A second time finds nothing more, and changes nothing.
    let named = fs::read(here.data())?;
    here.run(&["symbolize", "--debug-dir", symbols])?
        .success()?;
    ensure!(fs::read(here.data())? == named);
    Ok(())
}

/// Check that a run finds debug files in a folder of the user's, and that a folder which does not exist is refused.
#[test]
fn runs_search_a_folder_of_the_users() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (program, symbols) = split(&here)?;
    let symbols = symbols.to_str().context("no text")?;
    let options = ["--debug-dir", symbols];
    let recording = here.record(&options, &[&program, Path::new("no-pvalloc")])?;
    assert_eq!(names(&recording.report), (true, true));
    let refused = here.run(&["symbolize", "--debug-dir", "no-such-folder"])?;
    refused.exits(2)?;
    Ok(())
}

/// The path of a debug file by build id in a folder, given the path in another folder.
fn moved(debug: &Path, from: &Path, to: &Path) -> Result<PathBuf> {
    let moved = to.join(debug.strip_prefix(from)?);
    fs::create_dir_all(moved.parent().context("no folder")?)?;
    Ok(moved)
}

/// The debug file that is in a folder of symbols.
fn debug_file_in(symbols: &Path) -> Result<PathBuf> {
    let name = Path::new("-name");
    let listed = tool("find", &[symbols, name, Path::new("*.debug")])?;
    Ok(PathBuf::from(listed.trim()))
}

/// Check that names come from the debug file that elfutils splits off, from one whose entries dwz has moved to a file that it shares
/// with others, and from a table of symbols that is packed into the program.
#[test]
fn names_come_from_what_other_tools_make() -> Result<()> {
    let packages = [("eu-strip", "elfutils"), ("dwz", "dwz"), ("xz", "xz-utils")];
    for (name, package) in packages {
        require_tool(name, package)?;
    }
    let here = Heaptrace::tracing()?;
    let (program, symbols) = split(&here)?;
    here.record_all(&[&program, Path::new("no-pvalloc")])?;
    let debug = debug_file_in(&symbols)?;
    let whole = here.path("whole");
    tool("eu-unstrip", &[&program, &debug, Path::new("-o"), &whole])?;

    let stripped = here.path("eu-strip");
    let by_elfutils = moved(&debug, &symbols, &stripped)?;
    let out = here.path("stripped");
    tool(
        "eu-strip",
        &[Path::new("-f"), &by_elfutils, Path::new("-o"), &out, &whole],
    )?;

    let shared = here.path("dwz");
    let by_dwz = moved(&debug, &symbols, &shared)?;
    fs::copy(&debug, &by_dwz)?;
    let other = here.path("other.debug");
    fs::copy(&debug, &other)?;
    let common = shared.join("common.debug");
    tool(
        "dwz",
        &[
            Path::new("-m"),
            &common,
            Path::new("-M"),
            &common,
            &by_dwz,
            &other,
        ],
    )?;
    let sections = tool("readelf", &[Path::new("-SW"), &by_dwz])?;
    ensure!(sections.contains(".gnu_debugaltlink"), "{sections}");

    let named = |folder: &Path| -> Result<(bool, bool)> {
        let folder = folder.to_str().context("no text")?;
        let words = ["symbolize", "--debug-dir", folder, "-o", "named.data"];
        here.run(&words)?.success()?;
        let json = here.run(&["report", "--format", "json", "named.data"])?;
        Ok(names(&Report::parse(&json.success()?.stdout)?))
    };
    let nothing = here.path("nothing");
    fs::create_dir(&nothing)?;
    assert_eq!(named(&nothing)?, (false, false));
    assert_eq!(named(&stripped)?, (true, true), "eu-strip");
    assert_eq!(named(&shared)?, (true, true), "dwz");
    fs::remove_file(&common)?;
    assert_eq!(named(&shared)?, (true, false), "dwz, symbols alone");

    let mini = here.path("mini");
    let strip = [Path::new("--strip-debug"), &whole, &mini];
    tool("objcopy", &strip)?;
    tool("xz", &[&mini])?;
    let section = format!(".gnu_debugdata={}", here.path("mini.xz").display());
    tool(
        "objcopy",
        &[Path::new("--add-section"), Path::new(&section), &program],
    )?;
    assert_eq!(named(&nothing)?, (true, false), "mini debuginfo");
    Ok(())
}

/// Check that a run names inlined functions of a program whose debug information is in a `.dwo` file beside it, that a run without that file
/// says so, and that they are added from it, or from a package, later.
#[test]
fn inlined_functions_come_from_files_of_units() -> Result<()> {
    const SOURCE: &str = "#include <stdlib.h>
        void *volatile kept;
        static inline __attribute__((always_inline)) void inner(size_t n) { kept = malloc(n); }
        __attribute__((noinline)) void outer(size_t n) { inner(n + 1); inner(n + 2); }
        int main(void) { outer(100); return kept == 0; }";
    let here = Heaptrace::tracing()?;
    let (source, program) = (here.path("unit.c"), here.path("unit"));
    fs::write(&source, SOURCE)?;
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-g", "-gdwarf-4", "-gsplit-dwarf", "-o"]);
    run(compiler.arg(&program).arg(&source))?.success()?;
    let unit = here.path("unit.dwo");
    let is_named = |report: &Report, function: &str| {
        let mut frames = report.sites.iter().flat_map(|site| &site.stack);
        frames.any(|frame| frame.is(function) && frame.line.unwrap_or(0) > 0)
    };
    let recording = here.record_all(&[&program])?;
    ensure!(is_named(&recording.report, "inner"), "in the run");

    let folder = here.path("units");
    fs::create_dir(&folder)?;
    fs::rename(&unit, folder.join("unit.dwo"))?;
    let recording = here.record_all(&[&program])?;
    ensure!(!is_named(&recording.report, "inner") && is_named(&recording.report, "outer"));
    let told = &recording.ended.stderr;
    ensure!(told.contains("unit.dwo"), "{told}");
    fs::copy(here.data(), here.path("before.data"))?;
    let words = ["symbolize", "--debug-dir", "units"];
    let ended = here.run(&words)?.success()?;
    ensure!(
        ended.stderr.contains("more inlined functions"),
        "{}",
        ended.stderr
    );
    ensure!(is_named(&here.report()?, "inner"), "from the file");

    fs::copy(here.path("before.data"), here.data())?;
    let package = here.path("unit.dwp");
    let from = folder.join("unit.dwo");
    tool("dwp", &[Path::new("-o"), &package, &from])?;
    here.run(&["symbolize"])?.success()?;
    ensure!(is_named(&here.report()?, "inner"), "from the package");
    Ok(())
}

/// Check that a damaged file is refused and stays as it is, and that one that was cut off keeps what it has.
#[test]
fn damaged_files_are_refused() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (program, symbols) = split(&here)?;
    here.record_all(&[&program, Path::new("no-pvalloc")])?;
    let whole = fs::read(here.data())?;
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(here.data(), &damaged)?;
    let symbols = symbols.to_str().context("no text")?;
    let words = ["symbolize", "--debug-dir", symbols];
    here.run(&words)?.fails_clearly()?;
    ensure!(fs::read(here.data())? == damaged);
    fs::write(here.data(), &whole[..whole.len() - 3])?;
    here.run(&words)?.success()?;
    assert_eq!(names(&here.report()?), (true, true));
    Ok(())
}

/// A command that asks a server which behaves in this way and has this file.
fn asking(here: &Heaptrace, words: &[&str], mode: &str, file: &Path) -> Result<(Child, Command)> {
    require_tool("debuginfod-find", "debuginfod")?;
    let script = workspace().join("tests/fixtures/python/debuginfod.py");
    let mut server = Command::new(require_tool("python3", "python3")?);
    let mut server = Child::spawn(server.arg(script).arg(mode).arg(file))?;
    let port = server.line()?;
    let mut command = here.command(words)?;
    command
        .env(
            "DEBUGINFOD_URLS",
            format!("http://127.0.0.1:{}", port.trim()),
        )
        .env("DEBUGINFOD_CACHE_PATH", here.path(&format!("cache-{mode}")))
        .env("DEBUGINFOD_TIMEOUT", "2")
        .env("DEBUGINFOD_MAXTIME", "4")
        .env("DEBUGINFOD_MAXSIZE", "100000000");
    Ok((server, command))
}

/// Check that debug files are asked of a server if the environment names one, and that a server which has nothing, is slow, cuts files
/// off, or sends others or endless ones, does no harm.
#[test]
fn servers_are_asked() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (program, symbols) = split(&here)?;
    here.record_all(&[&program, Path::new("no-pvalloc")])?;
    let debug = debug_file_in(&symbols)?;
    for mode in ["missing", "slow", "cut", "wrong", "huge", "right"] {
        let (server, mut command) = asking(&here, &["symbolize"], mode, &debug)?;
        let begun = std::time::Instant::now();
        let ended = run(&mut command)?.success()?;
        ended.no_panic()?;
        let is_right = mode == "right";
        assert_eq!(names(&here.report()?), (is_right, is_right), "{mode}");
        // Without the limits of time, the slow one would take a minute for each file.
        ensure!(begun.elapsed().as_secs() < 60, "{mode}");
        server.signal(libc::SIGKILL)?;
    }
    Ok(())
}

/// Check that a source file which is not here is asked of a server if the environment names one, that a server which has it not, is slow
/// or sends an endless one does no harm, and that a report without a server asks none.
#[test]
fn servers_are_asked_for_sources() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let (program, built, kept) = (here.path("leaks"), here.path("built"), here.path("kept.c"));
    let source = built.join("leaks.c");
    fs::create_dir(&built)?;
    let code = "#include <stdlib.h>\nint main(void) {\n    char *volatile block = malloc(4321);\n    return block == 0;\n}\n";
    fs::write(&source, code)?;
    tool(
        "gcc",
        &[
            Path::new("-g"),
            Path::new("-Wl,--build-id"),
            Path::new("-o"),
            &program,
            &source,
        ],
    )?;
    here.record_all(&[&program])?;
    fs::rename(&source, &kept)?;
    let words = ["report", "--source", "--format", "json"];
    let line = |report: &str| -> Result<(Option<String>, Option<String>)> {
        let report: serde_json::Value = serde_json::from_str(report)?;
        let mut files = report["files"].as_array().context("no files")?.iter();
        let file = files.find(|it| {
            it["path"]
                .as_str()
                .is_some_and(|it| it.ends_with("/leaks.c"))
        });
        let file = file.with_context(|| format!("no such file: {report}"))?;
        let line = &file["lines"][0];
        assert_eq!(
            (&line["line"], &line["own"]["allocated_bytes"]),
            (&3.into(), &4321.into())
        );
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        Ok((text(&line["text"]), text(&file["read_from"])))
    };
    assert_eq!(line(&here.run(&words)?.success()?.stdout)?, (None, None));
    for mode in ["missing", "slow", "huge", "right"] {
        let (server, mut command) = asking(&here, &words, mode, &kept)?;
        let ended = run(&mut command)?.success()?;
        ended.no_panic()?;
        let (text, read_from) = line(&ended.stdout)?;
        let is_right = mode == "right";
        let found = text.is_some_and(|it| it == "    char *volatile block = malloc(4321);");
        assert_eq!((found, read_from.is_some()), (is_right, is_right), "{mode}");
        server.signal(libc::SIGKILL)?;
    }
    // A folder of the user's is searched before.
    let folder = here.path("moved");
    fs::create_dir(&folder)?;
    fs::rename(&kept, folder.join("leaks.c"))?;
    let folder = folder.to_str().context("no text")?;
    let words = [&words[..], &["--source-path", folder]].concat();
    let (text, read_from) = line(&here.run(&words)?.success()?.stdout)?;
    ensure!(text.is_some() && read_from.is_some_and(|it| it.starts_with(folder)));
    Ok(())
}

/// The allocated bytes of each line that allocates itself, by its text, in a listing.
fn own_lines(listing: &str) -> BTreeMap<String, String> {
    let lines = listing.lines().filter_map(|line| line.split_once(" > "));
    let of_line = |(numbers, line): (&str, &str)| {
        let allocated: Vec<&str> = numbers.rsplitn(3, "  ").collect();
        let code = line.trim_start().split_once("  ").map(|it| it.1);
        (
            code.unwrap_or_default().trim().to_owned(),
            allocated[0].trim().to_owned(),
        )
    };
    lines.map(of_line).collect()
}

/// Check that each line of a program's sources has exactly what the program counted for it, at the place where the files were or at
/// another one, and that the lines are listed without the files, too.
#[test]
fn lines_have_exact_memory() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let recording = here.record_all(&[c("hooks")?.path.as_path(), Path::new("no-pvalloc")])?;
    let truth = recording.truth("main")?;
    let listing = here.run(&["report", "--source"])?.success()?.stdout;
    let lines = own_lines(&listing);
    for (function, (_, bytes)) in truth.hooks.iter().filter(|(_, (calls, _))| *calls > 0) {
        let call = function.strip_prefix("truth_").context("another name")?;
        let has_call = |code: &str| {
            let mut words = code.split(|it: char| !it.is_alphanumeric() && it != '_');
            words.any(|word| word == call)
        };
        let mut of_call = lines.iter().filter(|(code, _)| has_call(code));
        let (code, allocated) = of_call
            .next()
            .with_context(|| format!("{call}: {listing}"))?;
        ensure!(
            *allocated == bytes_words(*bytes),
            "{code}: {allocated} for {bytes}"
        );
    }
    // The fixture's sources somewhere else.
    let sources = workspace().join("tests/fixtures/c");
    let moved = here.path("moved");
    fs::create_dir(&moved)?;
    for name in ["hooks.c", "truth.h"] {
        fs::copy(sources.join(name), moved.join(name))?;
    }
    let from = format!("{}=/no/such/folder", sources.display());
    let path = ["report", "--source", "--source-path"];
    let gone = here.run(&[&path[..], &[&from]].concat())?.success()?.stdout;
    assert_eq!(own_lines(&gone), lines, "the file itself is still there");
    let to = format!("{}={}", sources.display(), moved.display());
    let there = here.run(&[&path[..], &[&to]].concat())?.success()?.stdout;
    ensure!(there.contains("was changed after the recording"), "{there}");
    assert_eq!(own_lines(&there), lines);
    Ok(())
}

/// Bytes as reports write them.
fn bytes_words(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", units[unit]),
    }
}
