//! Compiles the fixture programs of `tests/fixtures/` into the target folder, each once.
//!
//! Part of the harness. It doesn't run them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, Result, ensure};

use crate::child::run;
use crate::paths::{target, workspace};

/// A compiled fixture.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// The program.
    pub path: PathBuf,
}

impl Fixture {
    /// The name of its file.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.display().to_string()
    }

    /// A command that runs it, untraced.
    pub fn command(&self) -> Command {
        Command::new(&self.path)
    }
}

impl AsRef<OsStr> for Fixture {
    fn as_ref(&self) -> &OsStr {
        self.path.as_os_str()
    }
}

/// Options for C and C++: keep frame pointers, warn, and make every call. (A compiler knows `malloc`, and removes
/// pairs of calls that it finds useless.)
const FLAGS: &[&str] = &[
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-omit-frame-pointer",
    "-fno-optimize-sibling-calls",
    "-fno-builtin",
    "-pthread",
];

/// A fixture in C.
pub fn c(name: &str) -> Result<Fixture> {
    compile("c", name, "c", |command| {
        command.arg("-std=gnu11").args(FLAGS);
    })
}

/// A compiler of C and C++, and its level of optimization.
#[derive(Clone, Copy, Debug)]
pub struct Compiler {
    /// `gcc` or `clang`.
    pub name: &'static str,
    /// A level of optimization such as `-O2`.
    pub level: &'static str,
}

impl Compiler {
    /// Every compiler at every level.
    pub fn all() -> impl Iterator<Item = Self> {
        ["gcc", "clang"].into_iter().flat_map(|name| {
            ["-O0", "-O1", "-O2", "-O3"]
                .into_iter()
                .map(move |level| Self { name, level })
        })
    }

    /// The compiler's name for C++.
    fn for_cpp(self) -> &'static str {
        match self.name {
            "gcc" => "g++",
            _ => "clang++",
        }
    }
}

/// A fixture in C without frame pointers.
pub fn c_optimized(name: &str, compiler: Compiler, definitions: &[&str]) -> Result<Fixture> {
    let Compiler { name: cc, level } = compiler;
    let output = format!("{name}-{cc}{level}{}", definitions.concat());
    compile_with(cc, "c", name, "c", &output, |command| {
        command
            .arg("-std=gnu11")
            .args(FLAGS)
            .args(definitions)
            .args([level, "-fomit-frame-pointer"]);
    })
}

/// A fixture in C++ without frame pointers.
pub fn cpp_optimized(name: &str, compiler: Compiler) -> Result<Fixture> {
    let output = format!("{name}-{}{}", compiler.name, compiler.level);
    compile_with(compiler.for_cpp(), "cpp", name, "cpp", &output, |command| {
        command
            .arg("-std=gnu++17")
            .args(FLAGS)
            .args([compiler.level, "-fomit-frame-pointer"]);
    })
}

/// A fixture in C, with further options, that begins only when it was moved to the fast path, if [`WAIT_UNTIL_MOVED`] is in
/// its environment.
pub fn c_moved(name: &str, output: &str, compiler: &str, options: &[&str]) -> Result<Fixture> {
    compile_with(compiler, "c", name, "c", output, |command| {
        command.arg("-std=gnu11").args(FLAGS).arg("-include");
        command.arg(moved_header()).args(options);
    })
}

/// The same in C++.
pub fn cpp_moved(name: &str, output: &str, compiler: &str, options: &[&str]) -> Result<Fixture> {
    compile_with(compiler, "cpp", name, "cpp", output, |command| {
        command.arg("-std=gnu++17").args(FLAGS).arg("-include");
        command.arg(moved_header()).args(options);
    })
}

/// The options that link jemalloc into a program.
pub const STATIC_JEMALLOC: [&str; 5] = [
    "-Wl,-Bstatic",
    "-ljemalloc",
    "-Wl,-Bdynamic",
    "-lm",
    "-lstdc++",
];

/// Makes such a fixture wait. (Other values are in `moved.h`.)
pub const WAIT_UNTIL_MOVED: &str = "WAIT_UNTIL_MOVED=1";

fn moved_header() -> PathBuf {
    workspace().join("tests/fixtures/c/moved.h")
}

/// A fixture in Rust with the options of a release build, without frame pointers.
pub fn rust_optimized(name: &str) -> Result<Fixture> {
    let output = format!("{name}-rust");
    compile_with("rustc", "rust", name, "rs", &output, |command| {
        command.args(["--edition", "2024", "-g", "-C", "opt-level=3"]);
    })
}

/// A shared library in C without frame pointers, for a fixture to load.
pub fn c_plugin(name: &str) -> Result<Fixture> {
    compile_as("c", name, "c", &format!("{name}.so"), |command| {
        command.arg("-std=gnu11").args(FLAGS).args([
            "-fPIC",
            "-shared",
            "-O2",
            "-fomit-frame-pointer",
        ]);
    })
}

/// A shared library in C to preload, built with these definitions.
pub fn c_preload(name: &str, output: &str, definitions: &[&str]) -> Result<Fixture> {
    compile_as("c", name, "c", output, |command| {
        command
            .arg("-std=gnu11")
            .args(FLAGS)
            .args(["-fPIC", "-shared"])
            .args(definitions);
    })
}

/// A shared library in C with unusual code, which is never called, built with these definitions.
pub fn c_hostile(name: &str, output: &str, definitions: &[&str]) -> Result<Fixture> {
    compile_as("c", name, "c", output, |command| {
        command.args(["-fPIC", "-shared"]).args(definitions);
    })
}

/// A fixture in C that is linked with the shared library of `<library>.c`.
pub fn c_library(name: &str, library: &str) -> Result<Fixture> {
    let file = format!("lib{library}.so");
    compile_as("c", library, "c", &file, |command| {
        command
            .arg("-std=gnu11")
            .args(FLAGS)
            .args(["-fPIC", "-shared"]);
    })?;
    compile("c", name, "c", |command| {
        command
            .arg("-std=gnu11")
            .args(FLAGS)
            .arg("-Wl,-rpath,$ORIGIN")
            .arg(folder().join(&file));
    })
}

/// A fixture in C, compiled with another compiler, linked with further options, or both.
pub fn c_linked(name: &str, output: &str, compiler: &str, options: &[&str]) -> Result<Fixture> {
    compile_with(compiler, "c", name, "c", output, |command| {
        command.arg("-std=gnu11").args(FLAGS).args(options);
    })
}

/// A fixture in C that is compiled and not linked.
pub(crate) fn c_object(name: &str) -> Result<Fixture> {
    compile_as("c", name, "c", &format!("{name}.o"), |command| {
        command.arg("-std=gnu11").args(FLAGS).args(["-fPIE", "-c"]);
    })
}

/// A fixture in C++, linked with further options.
pub fn cpp_linked(name: &str, output: &str, options: &[&str]) -> Result<Fixture> {
    compile_with("c++", "cpp", name, "cpp", output, |command| {
        command.arg("-std=gnu++17").args(FLAGS).args(options);
    })
}

/// A program of `fixtures/crates`, a workspace of its own whose dependencies come from crates.io.
pub fn rust_crate(name: &str) -> Result<Fixture> {
    let target = folder().join("crates");
    create(&folder())?;
    let manifest = workspace().join("tests/fixtures/crates/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--locked", "--package", name]);
    command.arg("--manifest-path").arg(&manifest);
    command.arg("--target-dir").arg(&target);
    // No time limit: a first build takes minutes.
    let output = command.output().context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Fixture {
        path: target.join("release").join(name),
    })
}

/// A program in Go that calls C: a folder of `fixtures/go`.
pub fn go(name: &str) -> Result<Fixture> {
    let (sources, folder) = (workspace().join("tests/fixtures"), folder());
    create(&folder)?;
    let path = folder.join(name);
    let include = format!("-O1 -g -fno-builtin -I{}", sources.join("c").display());
    let mut command = Command::new("go");
    command.args(["build", "-buildvcs=false", "-o"]).arg(&path);
    command.current_dir(sources.join("go").join(name));
    let cache = folder.join("go");
    command
        .env("CGO_ENABLED", "1")
        .env("CGO_CFLAGS", include)
        .env("GOTOOLCHAIN", "local")
        .env("GOCACHE", cache.join("cache"))
        .env("GOPATH", cache.join("path"));
    // No time limit: a first build compiles the standard library.
    let output = command.output().context("cannot run go")?;
    ensure!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Fixture { path })
}

/// A fixture without its symbol table.
pub fn stripped(fixture: &Fixture) -> Result<Fixture> {
    let path = fixture.path.with_extension("stripped");
    let mut command = Command::new("strip");
    command.arg("-o").arg(&path).arg(&fixture.path);
    let ended = run(&mut command)?;
    ensure!(
        ended.status.success(),
        "{command:?} failed:\n{}",
        ended.stderr
    );
    Ok(Fixture { path })
}

/// A program that the benchmarks measure with, `xtask/bench/<name>.c`.
pub fn bench_program(name: &str) -> Result<Fixture> {
    let source = workspace().join("xtask/bench").join(format!("{name}.c"));
    compile_file("cc", &source, &format!("bench-{name}"), |command| {
        command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-fno-builtin"]);
    })
}

/// A fixture in C++.
pub fn cpp(name: &str) -> Result<Fixture> {
    compile("cpp", name, "cpp", |command| {
        command.arg("-std=gnu++17").args(FLAGS);
    })
}

/// A fixture in Rust.
pub fn rust(name: &str) -> Result<Fixture> {
    compile("rust", name, "rs", |command| {
        command.args(["--edition", "2024", "-g", "-C", "opt-level=1"]);
        command.args(["-C", "force-frame-pointers=yes"]);
    })
}

/// The folder of all fixtures.
pub(crate) fn folder() -> PathBuf {
    target().join("fixtures")
}

fn compile(
    language: &str,
    name: &str,
    extension: &str,
    flags: impl FnOnce(&mut Command),
) -> Result<Fixture> {
    compile_as(language, name, extension, name, flags)
}

fn compile_as(
    language: &str,
    name: &str,
    extension: &str,
    output: &str,
    flags: impl FnOnce(&mut Command),
) -> Result<Fixture> {
    let compiler = match language {
        "c" => "cc",
        "cpp" => "c++",
        _ => "rustc",
    };
    compile_with(compiler, language, name, extension, output, flags)
}

fn compile_with(
    compiler: &str,
    language: &str,
    name: &str,
    extension: &str,
    output: &str,
    flags: impl FnOnce(&mut Command),
) -> Result<Fixture> {
    let sources = workspace().join("tests/fixtures");
    let source = sources.join(language).join(format!("{name}.{extension}"));
    compile_file(compiler, &source, output, flags)
}

fn compile_file(
    compiler: &str,
    source: &Path,
    output: &str,
    flags: impl FnOnce(&mut Command),
) -> Result<Fixture> {
    let folder = folder();
    create(&folder)?;
    let path = folder.join(output);

    // Several threads of several test programs may need the same fixture at once.
    let lock = File::create(folder.join(".lock"))?;
    lock.lock()
        .context("cannot lock the folder of the fixtures")?;
    let inputs = [
        source.to_owned(),
        workspace().join("tests/fixtures/c/frame.h"),
        workspace().join("tests/fixtures/c/group.h"),
        moved_header(),
        workspace().join("tests/fixtures/c/truth.h"),
        workspace().join("tests/src/fixture.rs"),
    ];
    if up_to_date(&path, &inputs)? {
        return Ok(Fixture { path });
    }
    let unfinished = folder.join(format!(".{output}.unfinished"));
    let mut command = Command::new(compiler);
    command.arg(source).arg("-o").arg(&unfinished);
    flags(&mut command);
    let ended = run(&mut command)?;
    ensure!(
        ended.status.success(),
        "{command:?} failed:\n{}",
        ended.stderr
    );
    fs::rename(&unfinished, &path)?;
    Ok(Fixture { path })
}

/// Creates the folder, for the user that built the tests.
fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    give(folder)
}

/// Gives a folder and those in it to the user that built the tests. Root runs them, and must leave nothing that this
/// user's `cargo clean` can't remove.
pub(crate) fn hand_over(folder: &Path) -> Result<()> {
    give(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            hand_over(&entry.path())?;
        }
    }
    Ok(())
}

fn give(folder: &Path) -> Result<()> {
    let owner = fs::metadata(target())?;
    chown(folder, Some(owner.uid()), Some(owner.gid()))
        .with_context(|| format!("cannot hand over {}", folder.display()))
}

fn up_to_date(path: &Path, inputs: &[PathBuf]) -> Result<bool> {
    let Ok(built) = fs::metadata(path).and_then(|data| data.modified()) else {
        return Ok(false);
    };
    let mut newest = SystemTime::UNIX_EPOCH;
    for input in inputs {
        let changed = fs::metadata(input)
            .and_then(|data| data.modified())
            .with_context(|| format!("no fixture source {}", input.display()))?;
        newest = newest.max(changed);
    }
    Ok(newest < built)
}
