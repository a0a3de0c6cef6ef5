//! Tests beside heaptrack: both must find the same numbers for the same commands.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, cpp, require_tool, run};

/// The emergency pool of the C++ runtime. heaptrack's own library brings it into programs that are not in C++, and frees it at the end of any.
const POOL: u64 = 72_704;

/// The sum of a cost that heaptrack_print finds in a recording of heaptrack.
fn cost(here: &Heaptrace, file: &str, name: &str) -> Result<u64> {
    let stacks = here.path("stacks.txt");
    let mut command = Command::new(require_tool("heaptrack_print", "heaptrack")?);
    command.arg(here.path(file)).arg("-F").arg(&stacks);
    command.args(["--flamegraph-cost-type", name]);
    // Both hide leaks that others than the program are to blame for.
    command.args([
        "--disable-builtin-suppressions",
        "--disable-embedded-suppressions",
    ]);
    run(&mut command)?.success()?;
    let text = fs::read_to_string(stacks)?;
    let values = text
        .lines()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    Ok(values.sum())
}

/// Fails unless heaptrace and heaptrack agree about a command within one in a hundred, beside the pool.
fn agree(command: &[OsString], is_cpp: bool) -> Result<()> {
    let here = Heaptrace::tracing()?;
    // Python's sets have another order in each run.
    let variables = [("PYTHONHASHSEED", "0")];
    let mut tracer = here.command(&["record", "--exact", "--no-mmap", "-o"])?;
    tracer.arg(here.data()).arg("--").args(command);
    run(tracer.envs(variables))?.success()?;
    let totals = here.report()?.totals;

    let mut heaptrack = Command::new(require_tool("heaptrack", "heaptrack")?);
    heaptrack.arg("-o").arg(here.path("beside")).args(command);
    run(heaptrack.envs(variables).current_dir(here.folder()))?.success()?;
    let files = ["beside.zst", "beside.gz"].into_iter();
    let mut files = files.filter(|it| here.path(it).exists());
    let file = files.next().context("heaptrack wrote no file")?;

    let (left, brought) = if is_cpp { (POOL, 0) } else { (0, POOL) };
    for (name, seen, brought) in [
        ("allocations", totals.allocations, brought.min(1)),
        ("temporary", totals.temporary_allocations, 0),
        ("leaked", totals.unfreed_bytes().saturating_sub(left), 0),
        ("peak", totals.peak_live_bytes, brought),
    ] {
        let theirs = cost(&here, file, name)?.saturating_sub(brought);
        ensure!(
            100 * seen.abs_diff(theirs) <= theirs,
            "{name} of {command:?}: {seen}, heaptrack has {theirs}"
        );
    }
    // So that no number is within its bounds because it is 0.
    ensure!(
        totals.temporary_allocations > 500 && totals.unfreed_bytes() > 0,
        "{command:?} has too little to compare: {} temporary blocks, {} bytes not freed",
        totals.temporary_allocations,
        totals.unfreed_bytes()
    );
    Ok(())
}

/// Check that allocations, temporary blocks, leaks and the peak of a database's script, of a C++ program that replaces buffers, and of Python
/// are heaptrack's. (Once, sites that replace a block by one of the same size had no temporary ones, and others had too many.)
#[test]
fn numbers_are_heaptracks() -> Result<()> {
    let mut sql =
        "create table t(id integer primary key, name text, size int); begin;\n".to_owned();
    for i in 0..400 {
        sql += &format!("insert into t values({i}, 'name {i}', {});\n", i % 97);
    }
    sql += "commit; create index by_size on t(size); select group_concat(name) from t order by size; \
            select size, count(*) from t group by size having count(*) > 4;";
    let sqlite = require_tool("sqlite3", "sqlite3")?;
    // heaptrack can't store a long command line.
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("script.sql");
    fs::write(&script, sql)?;
    let read = format!(".read {}", script.display());
    agree(&[sqlite.into(), ":memory:".into(), read.into()], false)?;
    agree(&[cpp("words")?.path.into()], true)?;
    let script = "import json; print(len(json.loads(json.dumps([{'a': i, 'b': str(i)} for i in range(2000)]))))";
    require_tool("python3", "python3")?;
    let python = "/usr/bin/python3".into();
    agree(&[python, "-c".into(), script.into()], false)
}
