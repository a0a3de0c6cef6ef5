//! Tests of real programs: heaptrace and valgrind must have the same totals for the same commands.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;

use anyhow::Result;
use heaptrace_tests::{HeapUsage, Heaptrace, require_tool};

/// Fails if two counts differ by more than a thousandth.
fn close(what: &str, seen: u64, expected: u64) {
    let difference = seen.abs_diff(expected);
    assert!(
        difference * 1000 <= expected,
        "{what}: {seen} instead of {expected}"
    );
}

fn agrees_with_valgrind(here: &Heaptrace, command: &[OsString]) -> Result<()> {
    let recording = here.record_all(command)?;
    let usage = HeapUsage::of(command)?;
    let totals = &recording.report.totals;
    close("allocations", totals.allocations, usage.allocations);
    close("bytes", totals.allocated_bytes, usage.allocated_bytes);
    close("frees", totals.frees, usage.frees);
    close("live bytes", totals.unfreed_bytes(), usage.live_bytes);
    assert_eq!(recording.report.quality.untracked_frees, 0);
    Ok(())
}

/// Check that jq on a big file has valgrind's totals.
#[test]
fn jq_agrees_with_valgrind() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let mut json = String::from("[");
    for number in 0..8000 {
        let comma = if number == 0 { "" } else { "," };
        write!(
            json,
            "{comma}{{\"a\":{{\"n\":{number},\"text\":\"value {number}\"}},\"b\":[{number},null,true]}}"
        )?;
    }
    json.push(']');
    let big = here.path("big.json");
    fs::write(&big, json)?;
    let jq = require_tool("jq", "jq")?;
    agrees_with_valgrind(&here, &[jq.into(), "-c".into(), ".[].a".into(), big.into()])
}

/// Check that a workload of SQLite has valgrind's totals.
#[test]
fn sqlite_agrees_with_valgrind() -> Result<()> {
    let here = Heaptrace::tracing()?;
    let sql = "create table t(id integer primary key, name text, size int);\n\
               with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)\n\
               insert into t select i, 'name ' || i, i * 7 % 1000 from n;\n\
               create index by_size on t(size);\n\
               select count(*), sum(size) from t where name like '%99%';\n\
               select group_concat(name) from (select name from t order by size, name limit 2000);\n\
               update t set name = name || '!' where size < 300;\n\
               delete from t where id % 3 = 0;\n\
               select size, count(*) from t group by size having count(*) > 10;\n";
    let script = here.path("workload.sql");
    fs::write(&script, sql)?;
    let sqlite = require_tool("sqlite3", "sqlite3")?;
    let read = format!(".read {}", script.display());
    agrees_with_valgrind(&here, &[sqlite.into(), ":memory:".into(), read.into()])
}
