//! Tests of `record --reachable` with programs whose memory can't be read at once: pointers that move meanwhile, and page faults that are never
//! answered.

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, MINUTE, c, until};
use serde_json::Value;

/// The blocks that the fixture loses, and their bytes.
const LOST: (u64, u64) = (50, 50 * 40);

fn found(here: &Heaptrace) -> Result<Value> {
    let ended = here.run(&["leaks", "--format", "json"])?.success()?;
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// Records a fixture, and searches its memory once. Returns what was found.
fn search(options: &[&str], words: &[&str]) -> Result<Value> {
    let here = Heaptrace::tracing()?;
    let fixture = c(words[0])?.path.display().to_string();
    let usual = ["--reachable", "--mmap", "--interval", "200ms"];
    let command = [&usual, options, &["--", &fixture], &words[1..]].concat();
    let mut recorder = here.start_record(&command)?;
    let pid: u32 = recorder.line()?.trim().parse().context("a pid")?;
    recorder.signal(libc::SIGUSR2)?;
    let mut now = Value::Null;
    until("a search", MINUTE, || {
        now = found(&here)?["unreachable"].take();
        Ok(!now["searches"][0].is_null())
    })?;
    recorder.go()?;
    here.finish(recorder)?;
    let search = &now["searches"][0];
    ensure!(
        search["pid"] == pid && search["refused"].is_null(),
        "{search}"
    );
    ensure!(search["has_all_blocks"] == true, "{search}");
    Ok(now)
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
    let words = ["movers", "32"];
    let found = search(&["--max-stop", "2ms"], &words)?;
    has_lost(&found)?;
    let by_and_by = &found["searches"][0];
    ensure!(by_and_by["is_whole"] == false, "{by_and_by}");
    ensure!(
        by_and_by["later_readings"].as_u64() >= Some(12),
        "{by_and_by}"
    );
    let found = search(&["--max-stop", "5s"], &words)?;
    has_lost(&found)?;
    let at_once = &found["searches"][0];
    ensure!(at_once["is_whole"] == true, "{at_once}");
    ensure!(at_once["later_readings"] == 0, "{at_once}");
    Ok(())
}

/// Check that page faults that are never answered hold up neither the search, nor a look into blocks, nor the reading of the memory map; and that
/// blocks with such pages are not in the way of others.
#[test]
fn unanswered_page_faults_hold_nothing_up() -> Result<()> {
    let found = search(&["--blocks", "--inspect-live"], &["unanswered"])?;
    has_lost(&found)?;
    let search = &found["searches"][0];
    ensure!(search["is_whole"] == true, "{search}");
    ensure!(search["unread_bytes"] == 0, "{search}");
    Ok(())
}
