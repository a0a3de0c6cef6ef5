//! Tests of `record --reachable` with programs whose memory can't be read at once: pointers that move meanwhile, and page faults that are never
//! answered.

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Child, Heaptrace, MINUTE, c, until};
use serde_json::Value;

/// The blocks that the fixture loses, and their bytes.
const LOST: (u64, u64) = (50, 50 * 40);

fn found(here: &Heaptrace) -> Result<Value> {
    let ended = here.run(&["leaks", "--format", "json"])?.success()?;
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// Records a fixture, and searches its memory some times. Returns what each search found.
fn search(options: &[&str], words: &[&str], times: usize) -> Result<Vec<Value>> {
    let here = Heaptrace::tracing()?;
    let fixture = c(words[0])?.path.display().to_string();
    let command = [options, &["--", &fixture], &words[1..]].concat();
    let mut recorder = here.start_record(&command)?;
    let pid: u32 = recorder.line()?.trim().parse().context("a pid")?;
    let searches = (0..times)
        .map(|_| one_search(&here, &recorder, pid))
        .collect::<Result<Vec<_>>>()?;
    recorder.go()?;
    here.finish(recorder)?;
    Ok(searches)
}

fn one_search(here: &Heaptrace, recorder: &Child, pid: u32) -> Result<Value> {
    let time = |found: &Value| found["unreachable"]["searches"][0]["at_ns"].as_u64();
    let before = time(&found(here)?);
    recorder.signal(libc::SIGUSR2)?;
    let mut now = Value::Null;
    until("a search", MINUTE, || {
        now = found(here)?;
        Ok(time(&now) > before)
    })?;
    let search = &now["unreachable"]["searches"][0];
    ensure!(
        search["pid"] == pid && search["refused"].is_null(),
        "{search}"
    );
    Ok(now["unreachable"].clone())
}

/// Fails unless exactly the lost blocks were found.
fn has_lost(found: &Value) -> Result<()> {
    let sites = found["sites"].as_array().context("no sites")?;
    let sums = sites.iter().map(|site| {
        let function = site["stack"][0]["function"].as_str();
        let number = |name: &str| site[name].as_u64().unwrap_or(0);
        (function, number("blocks"), number("bytes"))
    });
    let sums: Vec<_> = sums.collect();
    ensure!(
        sums == [(Some("lose"), LOST.0, LOST.1)],
        "{sums:?}\n{}",
        found["searches"]
    );
    Ok(())
}

/// Check that no block that a program can reach is called unreachable, though its threads move the only pointers to their blocks in memory that is too
/// large for the time of a stop; that the lost ones are; and that a longer stop is allowed, in which all of it is read.
#[test]
fn moved_pointers_are_seen() -> Result<()> {
    for found in search(&["--reachable", "--max-stop", "2ms"], &["movers", "64"], 3)? {
        has_lost(&found)?;
        let search = &found["searches"][0];
        ensure!(search["is_whole"] == false, "{search}");
        ensure!(search["later_readings"].as_u64() >= Some(12), "{search}");
    }
    for found in search(&["--reachable", "--max-stop", "5s"], &["movers", "64"], 1)? {
        has_lost(&found)?;
        let search = &found["searches"][0];
        ensure!(search["is_whole"] == true, "{search}");
        ensure!(search["later_readings"] == 0, "{search}");
    }
    Ok(())
}
