//! `cargo xtask test`: installs the packages that the tests need, then runs all tests, including those that
//! need root.
//!
//! It must not know what a test checks. A missing requirement fails; no test is skipped.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::lanes::{self, Program};
use crate::test_result::Counts;
use crate::{apt, cargo, digest, npm, process, run, workspace};

/// The Debian packages that the tests use: compilers for the fixtures, programs to trace, and tools to
/// compare with.
const PACKAGES: [&str; 28] = [
    "gcc",
    "g++",
    "clang",
    "libc6-dev",
    // valgrind needs the symbols of the dynamic loader.
    "libc6-dbg",
    "valgrind",
    "debuginfod",
    "dwz",
    "elfutils",
    "gdb",
    "golang-go",
    "git",
    "jq",
    "perl",
    "nodejs",
    "php-cli",
    "openjdk-17-jdk-headless",
    "python3",
    // It includes redis-server's program under another name, and starts no service.
    "redis-tools",
    "sqlite3",
    "strace",
    "libjemalloc-dev",
    "libgoogle-perftools-dev",
    // google-pprof, which reads heap profiles of gperftools.
    "google-perftools",
    "heaptrack",
    "libmimalloc-dev",
    "musl-tools",
    "xz-utils",
];

/// The package of the end-to-end tests.
const END_TO_END: &str = "heaptrace-tests";

/// The environment variables that the end-to-end tests need, and that sudo would drop.
const PASSED_ON: [&str; 7] = [
    "PATH",
    "CARGO",
    "CARGO_TARGET_DIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUST_BACKTRACE",
];

/// Run the tests.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Run the end-to-end tests with this kernel object instead of the committed one.
    #[arg(long, value_name = "PATH")]
    object: Option<PathBuf>,
    /// Run only this part.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Run only these files of `tests/tests` (end-to-end tests); may be given several times.
    #[arg(long = "suite", value_name = "NAME")]
    suites: Vec<String>,
    /// Run only tests whose names contain one of these.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// A part of the tests.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `cargo test --workspace`: all tests that need no rights.
    Unit,
    /// Checks that the kernel object was built from the committed sources.
    Digest,
    /// The tests that trace, as root.
    E2e,
}

impl Part {
    const ALL: [Self; 3] = [Self::Unit, Self::Digest, Self::E2e];

    fn title(self) -> &'static str {
        match self {
            Self::Unit => "unit tests",
            Self::Digest => "object digest",
            Self::E2e => "end-to-end tests",
        }
    }
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    let started = Instant::now();
    let object = args.object.as_deref().map(absolute).transpose()?;
    let parts: Vec<Part> = Part::ALL
        .into_iter()
        .filter(|part| args.only.is_none_or(|only| only == *part))
        .collect();
    apt::ensure(&PACKAGES, "for the tests")?;

    let mut summary = Vec::new();
    let mut total = Counts::default();
    let mut failure = None;
    for part in &parts {
        println!("==> {}", part.title());
        let began = Instant::now();
        let mut counts = Counts::default();
        let result = run_part(*part, object.as_deref(), args, &mut counts);
        let seconds = began.elapsed().as_secs_f64();
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("==> {}: {word} in {seconds:.1} s", part.title());
        let line = format!("{:<17} {word:<7} {seconds:>7.1} s  {counts}", part.title());
        summary.push(line);
        total.add(counts);
        if let Err(error) = result {
            eprintln!("xtask: {}: {error:#}", part.title());
            failure = Some(error);
            break;
        }
    }
    println!("\n==> summary");
    for line in &summary {
        println!("    {line}");
    }
    for part in parts.iter().skip(summary.len()) {
        println!("    {:<17} not run", part.title());
    }
    // The last line has cargo's format, for readers that parse only that line.
    println!(
        "\n{}",
        total.as_cargo_says_it(failure.is_none(), started.elapsed())
    );
    Ok(match failure {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}

fn run_part(part: Part, object: Option<&Path>, args: &Args, counts: &mut Counts) -> Result<()> {
    let filters = &args.filters;
    match part {
        Part::Unit => {
            let mut command = cargo::host("test");
            command.args(["--workspace", "--no-fail-fast", "--"]);
            command.args(filters);
            stream(&mut command, counts)?;
        }
        Part::Digest => {
            let committed = workspace::committed_object();
            let digest = digest::check(&workspace::root(), object.unwrap_or(&committed))?;
            println!("    {digest}");
        }
        Part::E2e => end_to_end(object, args, counts)?,
    }
    if part != Part::Digest && filters.is_empty() && counts.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

fn end_to_end(object: Option<&Path>, args: &Args, counts: &mut Counts) -> Result<()> {
    npm::ensure()?;
    run::build_release(object)?;
    trace(&args.suites, &args.filters, &[], counts)
}

/// Runs the end-to-end tests, all or only these suites, as root, with more environment variables.
pub(crate) fn trace(
    suites: &[String],
    filters: &[String],
    more: &[(&'static str, OsString)],
    counts: &mut Counts,
) -> Result<()> {
    let mut variables = vec![(
        "HEAPTRACE_BIN",
        OsString::from(workspace::heaptrace_binary()),
    )];
    variables.extend_from_slice(more);
    for name in PASSED_ON {
        if let Some(value) = env::var_os(name) {
            variables.push((name, value));
        }
    }
    let package = workspace::root().join("tests");
    variables.push(("CARGO_MANIFEST_DIR", package.clone().into()));
    // The user builds the tests and root runs them. If root ran cargo, it would leave files that the user
    // can't overwrite.
    let mut programs = Vec::new();
    for executable in test_executables(suites)? {
        let mut command = process::as_root(&executable, &variables)?;
        command.arg("--test-threads=2").args(filters);
        command.current_dir(&package);
        let name = suite_of(&executable);
        programs.push(Program { name, command });
    }
    let failures = lanes::run(programs, counts, &mut io::stdout());
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    Ok(())
}

/// The suite of a program, whose name ends in a hash: `stacks` of `stacks-0123456789abcdef`.
fn suite_of(executable: &Path) -> String {
    let name = executable.file_stem().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-')
        .map_or_else(|| name.to_string(), |(suite, _)| suite.to_owned())
}

/// Builds the end-to-end tests, all or only these suites, and lists their programs. The suites that need no rights ran with the unit tests.
fn test_executables(suites: &[String]) -> Result<Vec<PathBuf>> {
    let all = match suites {
        [] => workspace::root_suites()?,
        some => some.to_vec(),
    };
    let mut command = cargo::host("test");
    command.args(["--package", END_TO_END, "--features", "root", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    command.args(all.iter().flat_map(|suite| ["--test", suite]));
    executables(&process::output(&mut command)?)
}

/// The programs in cargo's messages.
pub(crate) fn executables(messages: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)
            .with_context(|| format!("cannot read cargo's message: {line}"))?;
        let is_test = message["profile"]["test"].as_bool().unwrap_or(false);
        if let Some(path) = message["executable"].as_str()
            && is_test
        {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

/// Runs the command, prints its output, and counts the test results in it.
fn stream(command: &mut Command, counts: &mut Counts) -> Result<()> {
    let name = process::describe(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{name}`"))?;
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            // A test can print any bytes.
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            counts.read(&text);
            line.clear();
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{name}` failed: {status}");
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that test programs are found in cargo's messages, and that other programs and libraries are
    /// ignored.
    #[test]
    fn test_programs_are_listed() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":"/t/fixture"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":"/t/deps/e2e-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":null}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
            "\n"
        );
        assert_eq!(
            executables(messages).unwrap(),
            [PathBuf::from("/t/deps/e2e-1")]
        );
    }

    /// Check that the suite of a program is found in its name.
    #[test]
    fn programs_belong_to_suites() {
        let suite = |path: &str| suite_of(Path::new(path));
        assert_eq!(suite("/t/deps/fast_exact-0123456789abcdef"), "fast_exact");
        assert_eq!(suite("/t/deps/stacks"), "stacks");
    }

    /// Check that a failed command is an error even if its results were counted.
    #[test]
    fn failures_are_errors_and_counted() {
        let mut counts = Counts::default();
        let script = "echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out'; exit 101";
        let result = stream(Command::new("sh").args(["-c", script]), &mut counts);
        assert!(result.is_err());
        assert_eq!((counts.passed, counts.failed), (2, 1));
    }
}
