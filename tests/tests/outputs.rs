//! Tests of heaptrace's output files, read by other programs and by heaptrace itself.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, c, cpp, require_root, require_tool, run};
use quick_xml::events::Event;

/// A recording of `hooks.c`, made once.
fn recorded() -> Result<Heaptrace> {
    static DATA: OnceLock<Vec<u8>> = OnceLock::new();
    require_root()?;
    let here = Heaptrace::tracing()?;
    if let Some(data) = DATA.get() {
        fs::write(here.data(), data)?;
        return Ok(here);
    }
    here.record_all(&[c("hooks")?])?;
    let data = fs::read(here.data())?;
    // Another thread may have been faster. Both recordings are equally good.
    let _ = DATA.set(data);
    Ok(here)
}

fn go_pprof(here: &Heaptrace, arguments: &[&str]) -> Result<String> {
    let mut go = Command::new(require_tool("go", "golang-go")?);
    go.args(["tool", "pprof", "-symbolize=none"])
        .args(arguments)
        .arg(here.path("heaptrace.pb.gz"))
        .current_dir(here.folder())
        .env("HOME", here.folder())
        .env("GOTOOLCHAIN", "local");
    Ok(run(&mut go)?.success()?.stdout)
}

/// Check that Go's pprof reads the profile, finds the seven sample types, shows first what the ended program left, and has the sums of
/// the JSON report.
#[test]
fn go_reads_the_profile() -> Result<()> {
    let here = recorded()?;
    here.run(&["pprof", "heaptrace.data", "-o", "heaptrace.pb.gz"])?
        .success()?;
    let report = here.report()?;
    let raw = go_pprof(&here, &["-raw"])?;
    let types = "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes peak_space/bytes \
                 left_objects/count left_space/bytes[dflt]";
    assert!(raw.contains(types), "{raw}");
    let (_, samples) = raw.split_once(types).context("no samples")?;
    let (samples, _) = samples.split_once("Locations").context("no locations")?;
    let mut sums = [0_u64; 7];
    for line in samples.lines() {
        let Some((values, _)) = line.split_once(':') else {
            continue;
        };
        let values: Vec<u64> = values
            .split_whitespace()
            .map(|value| value.parse().context("a value that is no number"))
            .collect::<Result<_>>()
            .unwrap_or_default();
        // The labels of a sample are on lines of their own, and have colons, too.
        if values.len() == sums.len() {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
    }
    let totals = &report.totals;
    assert_eq!(
        sums,
        [
            totals.allocations,
            totals.allocated_bytes,
            totals.live_allocations,
            totals.live_bytes,
            totals.peak_live_bytes,
            totals.left_at_exit_allocations,
            totals.left_at_exit_bytes
        ]
    );
    let comments = go_pprof(&here, &["-comments"])?;
    ensure!(
        !comments.contains(": 0\n"),
        "zeros are commented on: {comments}"
    );
    let top = go_pprof(&here, &["-top", "-unit=B"])?;
    assert!(top.contains("left_space"), "{top}");
    assert!(top.contains("truth_pvalloc"), "{top}");
    assert!(
        top.contains(&format!("{}B total", totals.left_at_exit_bytes)),
        "{top}"
    );
    Ok(())
}

/// Check that the flame graph is well-formed XML, that its title names metric and mode, and that it shows the functions
/// that allocated.
#[test]
fn the_flame_graph_is_well_formed() -> Result<()> {
    let here = recorded()?;
    here.run(&["flamegraph", "heaptrace.data", "-o", "out.svg"])?
        .success()?;
    let svg = fs::read_to_string(here.path("out.svg"))?;
    let mut reader = quick_xml::Reader::from_str(&svg);
    let mut depth = 0_i32;
    let mut names = Vec::new();
    let mut text = String::new();
    loop {
        match reader.read_event().context("not well-formed")? {
            Event::Start(element) => {
                depth += 1;
                names.push(String::from_utf8(element.name().as_ref().to_vec())?);
            }
            Event::End(_) => depth -= 1,
            Event::Text(bytes) => {
                text.push_str(&bytes.decode()?);
                text.push('\n');
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "an element is not closed");
    assert_eq!(names.first().map(String::as_str), Some("svg"));
    let text = text.to_lowercase();
    assert!(text.contains("left at exit"), "no metric in the title");
    assert!(text.contains("exact"), "no mode in the title");
    assert!(text.contains("truth_valloc"), "no function");
    Ok(())
}

/// Check that the flame graph of a program that freed all shows its peak, and that the title and a note say so. (Once, it
/// failed.)
#[test]
fn the_peak_is_drawn_where_all_was_freed() -> Result<()> {
    let here = Heaptrace::tracing()?;
    here.record_all(&[c("freed")?])?;
    let ended = here
        .run(&["flamegraph", "heaptrace.data", "-o", "out.svg"])?
        .success()?;
    assert!(ended.stderr.contains("all was freed"), "{}", ended.stderr);
    let svg = fs::read_to_string(here.path("out.svg"))?;
    let (picture, _) = svg.split_once("<script").context("no script")?;
    assert!(picture.contains("bytes at peak of "));
    assert!(picture.contains(" (all was freed)"));
    Ok(())
}

/// Check that a C++ name with markup characters is escaped in the flame graph.
#[test]
fn markup_in_names_is_escaped() -> Result<()> {
    let here = Heaptrace::tracing()?;
    here.record_all(&[cpp("exceptions")?])?;
    here.run(&["flamegraph", "heaptrace.data", "-o", "out.svg"])?
        .success()?;
    let svg = fs::read_to_string(here.path("out.svg"))?;
    let mut reader = quick_xml::Reader::from_str(&svg);
    while !matches!(reader.read_event().context("not well-formed")?, Event::Eof) {}
    Ok(())
}

/// Check that the text report names the biggest sites and says that nothing was lost, and that a report with details has
/// every table and every reason for losses.
#[test]
fn the_text_report_is_complete() -> Result<()> {
    let here = recorded()?;
    let text = here.run(&["report", "heaptrace.data"])?.success()?;
    assert_eq!(text.stderr, "");
    assert!(text.stdout.contains("truth_pvalloc"), "{}", text.stdout);
    assert!(text.stdout.contains("nothing lost"), "{}", text.stdout);
    assert!(!text.stdout.contains('\x1b'), "colours on a pipe");
    let details = here
        .run(&["report", "--details", "heaptrace.data"])?
        .success()?;
    for part in [
        "ring_full",
        "swept_live",
        "Allocators",
        "Processes",
        "Sizes",
    ] {
        assert!(!text.stdout.contains(part), "{}", text.stdout);
        assert!(details.stdout.contains(part), "{}", details.stdout);
    }
    Ok(())
}

/// Check that a report has the tracer's own processor time and memory, in a range that excludes a wrong unit.
#[test]
fn the_tracers_own_cost_is_reported() -> Result<()> {
    let begin = Instant::now();
    let recording = Heaptrace::tracing()?.record_all(&[c("hooks")?])?;
    let most = begin.elapsed().as_nanos() * 2 * thread::available_parallelism()?.get() as u128;
    let quality = &recording.report.quality;
    assert!(
        quality.agent_cpu_ns > 1_000_000 && u128::from(quality.agent_cpu_ns) < most,
        "{} ns of {most}",
        quality.agent_cpu_ns
    );
    for bytes in [quality.agent_peak_bytes, quality.kernel_map_bytes] {
        assert!((1 << 20..4 << 30).contains(&bytes), "{bytes}");
    }
    Ok(())
}

/// Check that commands without a file name write and read `heaptrace.data`.
#[test]
fn files_have_default_names() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut record = here.command(&["record", "--"])?;
    run(record.arg(&c("hooks")?.path))?.success()?;
    for (command, file) in [
        ("flamegraph", "heaptrace.svg"),
        ("pprof", "heaptrace.pb.gz"),
    ] {
        here.run(&[command])?.success()?;
        assert!(here.path(file).is_file(), "{command} wrote no {file}");
    }
    here.run(&["report"])?.success()?;
    Ok(())
}

/// Check that other users can't read a data file, and that under sudo it belongs to the invoking user.
#[test]
fn a_data_file_is_private() -> Result<()> {
    let here = recorded()?;
    let fresh = here.path("fresh.data");
    let mut command = here.command(&["record", "-o", "fresh.data", "--", "/bin/true"])?;
    command.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
    // An older file there, which every user can read, must not make the new one readable.
    fs::write(&fresh, "old")?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o666))?;
    run(&mut command)?.success()?;
    let data = fs::metadata(&fresh)?;
    assert_eq!(data.permissions().mode() & 0o7777, 0o600);
    assert_eq!((data.uid(), data.gid()), (65534, 65534));
    Ok(())
}

/// Check that a full disk gives a clear error in every command that writes.
#[test]
fn a_full_disk_is_a_clear_error() -> Result<()> {
    let here = recorded()?;
    for arguments in [
        &["record", "-o", "/dev/full", "--", "/bin/true"] as &[&str],
        &["flamegraph", "heaptrace.data", "-o", "/dev/full"],
        &["pprof", "heaptrace.data", "-o", "/dev/full"],
    ] {
        let ended = here.run(arguments)?.fails_clearly()?;
        assert!(
            ended.stderr.contains("/dev/full"),
            "{arguments:?}: {}",
            ended.stderr
        );
        assert!(
            ended.stderr.contains("No space left"),
            "{arguments:?}: {}",
            ended.stderr
        );
    }
    // Standard output must fail alike.
    let mut report = here.command(&["report", "heaptrace.data"])?;
    let mut report = report
        .stdout(File::options().write(true).open("/dev/full")?)
        .stderr(Stdio::piped())
        .spawn()?;
    ensure!(
        !report.wait()?.success(),
        "a full standard output went unnoticed"
    );
    Ok(())
}

/// Check that if the disk fills up during a recording, the file up to there can be read.
#[test]
fn a_file_on_a_full_disk_is_readable() -> Result<()> {
    let here = Heaptrace::tracing()?;
    // A file system that only this process tree sees, too small for the run.
    let small = here.path("small");
    fs::create_dir(&small)?;
    let script = "mount -t tmpfs -o size=64k,mode=700 none small || exit 90; \
                  head -c 40000 /dev/zero > small/filler; \
                  \"$0\" record -o small/f --interval 100ms -- \"$1\" >/dev/null; status=$?; \
                  cp small/f copy; exit $status";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(heaptrace_tests::heaptrace()?)
        .arg(c("many_sites")?.path)
        .current_dir(here.folder());
    let ended = run(&mut command)?;
    ended.no_panic()?;
    assert_ne!(ended.code(), 90, "no small file system: {}", ended.stderr);
    assert_ne!(ended.code(), 0, "the full disk went unnoticed");
    assert!(ended.stderr.contains("No space left"), "{}", ended.stderr);
    let read = here.run(&["report", "copy"])?.success()?;
    assert!(
        !read.stderr.is_empty(),
        "no warning that the file ends early"
    );
    Ok(())
}

/// Check that a file that is truncated anywhere is read with a warning, or refused with a clear error.
#[test]
fn a_truncated_file_is_read_or_refused() -> Result<()> {
    let here = recorded()?;
    let data = fs::read(here.data())?;
    let mut read = 0;
    for part in 1..20 {
        fs::write(here.path("cut"), &data[..data.len() * part / 20])?;
        let ended = here.run(&["report", "cut"])?;
        if ended.code() == 0 {
            ended.no_panic()?;
            assert!(!ended.stderr.is_empty(), "{part}/20: no warning");
            read += 1;
        } else {
            ended.fails_clearly()?;
        }
    }
    // If one byte is missing, only the end is lost.
    fs::write(here.path("cut"), &data[..data.len() - 1])?;
    let ended = here.run(&["report", "cut"])?.success()?;
    assert!(!ended.stderr.is_empty(), "no warning");
    assert!(read > 0, "no truncated file could be read at all");
    Ok(())
}

/// Check that a file with any damaged byte is read up to the damage or refused, and that the exit status shows it, so that
/// no program takes the file for a complete one.
#[test]
fn damage_in_a_file_is_reported() -> Result<()> {
    let here = recorded()?;
    let data = fs::read(here.data())?;
    for part in 0..25 {
        let mut damaged = data.clone();
        damaged[data.len() * part / 25] ^= 0x55;
        fs::write(here.path("damaged"), &damaged)?;
        let ended = here.run(&["report", "damaged"])?.exits(1)?;
        ended.no_panic()?;
        assert!(
            !ended.stderr.is_empty(),
            "{part}/25: the damage went unnoticed"
        );
    }
    Ok(())
}

/// Check that a closed pipe on standard output ends a report without a message.
#[test]
fn a_closed_pipe_is_quiet() -> Result<()> {
    let here = recorded()?;
    for arguments in [
        &["report", "heaptrace.data"] as &[&str],
        &["report", "--format", "json", "heaptrace.data"],
        &["doctor"],
    ] {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let mut command = here.command(arguments)?;
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn()?;
        let output = child.wait_with_output()?;
        assert_ne!(output.status.code(), Some(101));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
    Ok(())
}

/// Check that the live view without a terminal is plain text that ends with the whole report, and that the command's
/// status is passed on.
#[test]
fn the_live_view_is_plain_without_a_terminal() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let demo = c("demo")?;
    let script = "\"$0\" >/dev/null; exit 4";
    let mut command = here.command(&["--interval", "300ms", "--", "sh", "-c", script])?;
    let ended = run(command.arg(&demo.path))?;
    ended.no_panic()?;
    assert_eq!(ended.code(), 4, "{}", ended.stderr);
    assert!(!ended.stdout.contains('\x1b'), "terminal codes in a pipe");
    for function in ["leak_session", "grow_cache"] {
        // It is in an interim report and in the last one.
        let times = ended.stdout.matches(function).count();
        assert!(
            times >= 2,
            "{function} is shown {times} times:\n{}",
            ended.stdout
        );
    }
    Ok(())
}

/// Check that the live view and its final report group as asked.
#[test]
fn the_live_view_groups() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let demo = c("demo")?;
    for (by, names) in [
        ("process", ["demo"].as_slice()),
        ("function", &["copy_text", "grow_cache"]),
    ] {
        let script = "\"$0\" >/dev/null; exit 0";
        let options = ["--by", by, "--interval", "300ms", "--", "sh", "-c", script];
        let ended = run(here.command(&options)?.arg(&demo.path))?;
        ended.no_panic()?;
        let heading = format!("  processes  {by}\n");
        let (live, report) = ended
            .stdout
            .rsplit_once(&heading)
            .with_context(|| format!("no table by {by}:\n{}", ended.stdout))?;
        assert!(!live.is_empty(), "nothing before the table");
        for name in names {
            let lines = report
                .lines()
                .filter(|line| line.ends_with(&format!(" {name}")));
            // It is in the last table and in the report.
            assert_eq!(lines.count(), 2, "{name} by {by}:\n{report}");
        }
        let last = " by bytes left at exit\n";
        assert!(report.contains(last), "no report by {by}:\n{report}");
    }
    Ok(())
}

/// Check that on a terminal the live view redraws itself and ends with the report.
#[test]
fn the_live_view_redraws_on_a_terminal() -> Result<()> {
    let here = Heaptrace::tracing()?;
    // `script` runs its command on a terminal, and copies the terminal's output.
    let line = format!(
        "{} --interval 300ms -- {}",
        heaptrace_tests::heaptrace()?.display(),
        c("demo")?.path.display()
    );
    let mut script = Command::new(require_tool("script", "bsdutils")?);
    script
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .current_dir(here.folder());
    let ended = run(&mut script)?.success()?;
    assert!(
        ended.stdout.contains("\x1b["),
        "never redrawn:\n{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("leak_session"), "{}", ended.stdout);
    Ok(())
}

/// Check that terminal codes in names of threads and processes are escaped.
#[test]
fn terminal_codes_in_names_are_escaped() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let fixture = c("hooks")?;
    let evil = here.path("evil\x1b[31m\u{7}");
    run(Command::new("cp").arg(&fixture.path).arg(&evil))?.success()?;
    here.record_all(&[&evil])?;
    for arguments in [
        &["report", "heaptrace.data"] as &[&str],
        &["report", "--format", "json", "heaptrace.data"],
    ] {
        let ended = here.run(arguments)?.success()?;
        let all = ended.stdout + &ended.stderr;
        assert!(
            !all.contains(['\x1b', '\u{7}']),
            "{arguments:?} passes codes on"
        );
    }
    Ok(())
}
