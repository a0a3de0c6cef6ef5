//! Brings real programs with their debug information: builds them from source, or unpacks packages.
//!
//! Part of types. Each has a folder of its own, which is kept. It must not know what is measured.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::archive;
use crate::{apt, cargo, process};

/// The version of the Rust package that has SQLite.
const RUSQLITE: &str = "0.43.0";

/// How a program is run.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) command: Vec<OsString>,
    /// Variables of its environment.
    pub(super) variables: Vec<(&'static str, OsString)>,
    /// The folder of its debug files, if it has some.
    pub(super) debug: Option<PathBuf>,
    /// Whether it starts heaptrace itself, by the variable `TRACER`.
    pub(super) starts_tracer: bool,
}

/// A program that runs SQL, with SQLite's source in it.
pub(super) fn sqlite(folder: &Path) -> Result<Prepared> {
    const MANIFEST: &str = "[package]\nname = \"sql\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
                            [profile.release]\ndebug = 2\n\n[dependencies]\n";
    const MAIN: &str = "fn main() -> rusqlite::Result<()> {\n\
                        let sql = std::env::args().nth(1).unwrap_or_default();\n\
                        rusqlite::Connection::open_in_memory()?.execute_batch(&sql)\n}\n";
    const SQL: &str = "create table t(a, b); insert into t with recursive n(i) as \
                       (select 1 union all select i+1 from n where i < 100000) select i, 'row ' || (i % 100) from n; \
                       create index x on t(b); create table s as select b, sum(a) from t group by b;";
    let folder = folder.join("sqlite");
    fs::create_dir_all(folder.join("src")).context("cannot make a folder")?;
    let rusqlite =
        format!("rusqlite = {{ version = \"={RUSQLITE}\", features = [\"bundled\"] }}\n");
    fs::write(folder.join("Cargo.toml"), format!("{MANIFEST}{rusqlite}"))?;
    fs::write(folder.join("src/main.rs"), MAIN)?;
    let target = folder.join("target");
    let mut build = outside("build");
    build.args(["--release", "--manifest-path"]);
    build.arg(folder.join("Cargo.toml"));
    process::run(build.arg("--target-dir").arg(&target))?;
    Ok(Prepared {
        command: vec![target.join("release/sql").into(), SQL.into()],
        ..Prepared::default()
    })
}

/// A redis server, under the command in `TRACER`, and its own benchmark.
pub(super) fn redis(folder: &Path) -> Result<Prepared> {
    const SCRIPT: &str = "cd \"$(dirname \"$0\")\" && rm -f socket\n\
                          $TRACER ./src/redis-server --port 0 --unixsocket socket --save '' > server.log &\n\
                          while ! [ -S socket ]; do sleep 0.01; done\n\
                          ./src/redis-benchmark -s \"$PWD/socket\" -q -n 20000 -t set,get,lpush > benchmark.log\n\
                          ./src/redis-cli -s socket shutdown nosave\n\
                          wait\n";
    apt::ensure(&["gcc", "make", "libc6-dev"], "for building redis")?;
    let source = archive::source("redis", &folder.join("redis"))?;
    let mut build = Command::new("make");
    build.arg("-C").arg(source.join("src"));
    build.args(["MALLOC=libc", "OPTIMIZATION=-O2", "-s", "-j2"]);
    build.args(["redis-server", "redis-benchmark", "redis-cli"]);
    process::output(&mut build)?;
    let script = source.join("traced.sh");
    fs::write(&script, SCRIPT)?;
    Ok(Prepared {
        command: vec!["sh".into(), script.into()],
        starts_tracer: true,
        ..Prepared::default()
    })
}

/// Debian's interpreter, with its debug files.
pub(super) fn cpython(folder: &Path) -> Result<Prepared> {
    const SCRIPT: &str = "import json\n\
                          text = json.dumps([{'id': i, 'tags': ['a', str(i)]} for i in range(2000)])\n\
                          for _ in range(20): assert len(json.dumps(json.loads(text))) == len(text)\n";
    let folder = folder.join("cpython");
    let (own, debug) = (folder.join("own"), folder.join("debug"));
    apt::unpack(
        &[
            "python3.11-minimal",
            "libpython3.11-minimal",
            "libpython3.11-stdlib",
        ],
        &own,
    )?;
    apt::unpack(&["python3.11-dbg", "libc6-dbg"], &debug)?;
    Ok(Prepared {
        command: vec![
            own.join("usr/bin/python3.11").into(),
            "-S".into(),
            "-c".into(),
            SCRIPT.into(),
        ],
        variables: vec![
            ("PYTHONHOME", own.join("usr").into()),
            ("PYTHONMALLOC", "malloc".into()),
        ],
        debug: Some(debug.join("usr/lib/debug")),
        starts_tracer: false,
    })
}

/// cargo for packages that are not this repository's, whose settings are for its own.
fn outside(subcommand: &str) -> Command {
    let mut command = cargo::host(subcommand);
    command.current_dir("/").env_remove("CARGO_TARGET_DIR");
    command
}
