//! Brings real programs with their debug information: builds them from source, or unpacks packages.
//!
//! Part of types. Each has a folder of its own, which is kept. It must not know what is measured.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::archive;
use crate::bench::programs;
use crate::{apt, cargo, process, workspace};

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

/// The version of a large program in Rust.
const RIPGREP: &str = "15.2.0";

/// SQLite as its Rust package builds it, with the size of each block before it.
pub(super) fn sqlite(folder: &Path) -> Result<Prepared> {
    sqlite_with("", &folder.join("sqlite"))
}

/// SQLite as distributions build it: the allocator knows the size of each block.
pub(super) fn sqlite_of_distributions(folder: &Path) -> Result<Prepared> {
    let options = "-DHAVE_MALLOC_H=1 -DHAVE_MALLOC_USABLE_SIZE=1";
    sqlite_with(options, &folder.join("sqlite-distribution"))
}

/// A program that runs SQL, with SQLite's source in it, which is built with these options.
fn sqlite_with(options: &str, folder: &Path) -> Result<Prepared> {
    const MANIFEST: &str = "[package]\nname = \"sql\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
                            [profile.release]\ndebug = 2\n\n[dependencies]\n";
    const MAIN: &str = "fn main() -> rusqlite::Result<()> {\n\
                        let sql = std::env::args().nth(1).unwrap_or_default();\n\
                        rusqlite::Connection::open_in_memory()?.execute_batch(&sql)\n}\n";
    const SQL: &str = "create table t(a, b); insert into t with recursive n(i) as \
                       (select 1 union all select i+1 from n where i < 100000) select i, 'row ' || (i % 100) from n; \
                       create index x on t(b); create table s as select b, sum(a) from t group by b;";
    fs::create_dir_all(folder.join("src")).context("cannot make a folder")?;
    let rusqlite =
        format!("rusqlite = {{ version = \"={RUSQLITE}\", features = [\"bundled\"] }}\n");
    fs::write(folder.join("Cargo.toml"), format!("{MANIFEST}{rusqlite}"))?;
    fs::write(folder.join("src/main.rs"), MAIN)?;
    let target = folder.join("target");
    let mut build = outside("build");
    build.args(["--release", "--manifest-path"]);
    build.env("LIBSQLITE3_FLAGS", options);
    build.arg(folder.join("Cargo.toml"));
    process::run(build.arg("--target-dir").arg(&target))?;
    Ok(Prepared {
        command: vec![target.join("release/sql").into(), SQL.into()],
        ..Prepared::default()
    })
}

/// ripgrep, which searches this repository.
pub(super) fn ripgrep(folder: &Path) -> Result<Prepared> {
    let folder = folder.join("ripgrep");
    let mut install = outside("install");
    install.args(["--quiet", "--locked", "--version"]);
    install.arg(format!("={RIPGREP}"));
    install.arg("--root").arg(&folder);
    install.arg("--target-dir").arg(folder.join("target"));
    install.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
    process::run(install.arg("ripgrep"))?;
    let options = "--no-config --threads 1 --json --ignore-case 'pub(.super.)? fn [a-z_]+'";
    let script = format!("exec \"$0\" {options} \"$1\" > /dev/null");
    let mut command: Vec<OsString> = ["sh", "-c"].map(OsString::from).into();
    command.extend([
        script.into(),
        folder.join("bin/rg").into(),
        workspace::root().join("heaptrace/src").into(),
    ]);
    Ok(Prepared {
        command,
        ..Prepared::default()
    })
}

/// A redis server, under the command in `TRACER`, and its own benchmark.
pub(super) fn redis(folder: &Path) -> Result<Prepared> {
    apt::ensure(&["gcc", "make", "libc6-dev"], "for building redis")?;
    let source = archive::source("redis", &folder.join("redis"))?;
    let mut build = Command::new("make");
    build.arg("-C").arg(source.join("src"));
    build.args(["MALLOC=libc", "OPTIMIZATION=-O2", "-s", "-j2"]);
    build.args(["redis-server", "redis-benchmark", "redis-cli"]);
    process::output(&mut build)?;
    let own = source.join("src");
    let server = own.join("redis-server");
    let mut paths = vec![own];
    paths.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    Ok(Prepared {
        command: programs::redis_of(&server, &source, 20_000)?,
        variables: vec![("PATH", env::join_paths(paths)?)],
        starts_tracer: true,
        ..Prepared::default()
    })
}

/// Debian's interpreter, with its debug files.
pub(super) fn cpython(folder: &Path) -> Result<Prepared> {
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
            programs::round_trips_of_json(20).into(),
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
