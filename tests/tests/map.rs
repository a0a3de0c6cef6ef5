//! Tests of the memory map, with a program that fragments its heap in a known way.

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, c, ready_pid};
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
