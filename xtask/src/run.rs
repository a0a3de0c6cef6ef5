//! `cargo xtask run`: builds heaptrace and runs it as root, with the user's arguments or on the bundled demo.
//!
//! It must not know the meaning of heaptrace's arguments.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, iter};

use anyhow::{Context, Result};

use crate::{apt, cargo, process, workspace};

/// The demo program. It leaks, grows and churns, and ends by itself.
const DEMO: &str = "tests/fixtures/c/demo.c";

/// Build heaptrace and run it.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// The arguments for heaptrace. Without any, record the demo, then report.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    apt::ensure_cc("for building heaptrace")?;
    build_release(None)?;
    // The arguments as typed, because clap removes a leading `--`, which heaptrace needs.
    let typed: Vec<OsString> = env::args_os().skip(2).collect();
    if args.args.is_empty() && typed.is_empty() {
        return demo();
    }
    let mut command = heaptrace(&typed)?;
    // It replaces this process, so that signals and the exit status need no forwarding.
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run `{}`", process::describe(&command)))
}

/// Builds heaptrace for release, with this kernel object or the committed one.
pub fn build_release(object: Option<&Path>) -> Result<()> {
    let mut command = cargo::host("build");
    command.args(["--release", "--package", "heaptrace"]);
    match object {
        Some(path) => command.env("HEAPTRACE_BPF_OBJECT", path),
        None => command.env_remove("HEAPTRACE_BPF_OBJECT"),
    };
    process::run(&mut command).context("heaptrace did not build")
}

/// A command that runs the release build with the arguments, as root.
pub fn heaptrace(args: &[OsString]) -> Result<Command> {
    let mut command = process::as_root(workspace::heaptrace_binary(), &[])?;
    command.args(args);
    Ok(command)
}

/// Compiles a C program of this repository. Reports name its sources relative to the repository.
pub fn compile_c(source: &str, flags: &[&str]) -> Result<PathBuf> {
    apt::ensure_cc("for compiling a C program to trace")?;
    let root = workspace::root();
    let source = Path::new(source);
    let folder = workspace::target_dir().join("xtask");
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let program = folder.join(source.file_stem().unwrap_or("program".as_ref()));
    let mut command = Command::new("cc");
    command.args(["-g", "-pthread"]);
    command.arg(format!("-ffile-prefix-map={}=.", root.display()));
    command.args(flags).arg("-o").arg(&program).arg(source);
    command.current_dir(root);
    process::run(&mut command)?;
    Ok(program)
}

fn demo() -> Result<ExitCode> {
    let program = compile_c(DEMO, &["-O1"])?;
    // The names are short, because the command line is a part of the reports.
    let program = match env::current_dir() {
        Ok(here) => program.strip_prefix(here).unwrap_or(&program),
        Err(_) => &program,
    };
    let [data, svg, pprof] = ["heaptrace.data", "heaptrace.svg", "heaptrace.pb.gz"];
    let steps: [(&str, Vec<OsString>); 4] = [
        (
            "Recording the demo program",
            vec![
                "record".into(),
                "-o".into(),
                data.into(),
                "--".into(),
                program.into(),
            ],
        ),
        ("Reporting", vec!["report".into(), data.into()]),
        (
            "Drawing a flame graph",
            vec!["flamegraph".into(), data.into(), "-o".into(), svg.into()],
        ),
        (
            "Writing a profile for pprof",
            vec!["pprof".into(), data.into(), "-o".into(), pprof.into()],
        ),
    ];
    for (what, args) in steps {
        let words: Vec<_> = iter::once("heaptrace".into())
            .chain(args.iter().map(|word| word.to_string_lossy()))
            .collect();
        println!("\n==> {what}: {}", words.join(" "));
        let mut command = if args.first().is_some_and(|word| word == "record") {
            heaptrace(&args)?
        } else {
            // Only tracing needs rights. Files that are made from the data file belong to the user.
            let mut command = Command::new(workspace::heaptrace_binary());
            command.args(&args);
            command
        };
        let status = process::status(&mut command)?;
        if !status.success() {
            eprintln!("xtask: `{}` failed: {status}", process::describe(&command));
            return Ok(ExitCode::from(process::exit_code(status)));
        }
    }
    println!("\n==> Done");
    println!("    {data}: the data file, for `heaptrace report` and similar commands");
    println!("    {svg}: the flame graph, for a browser");
    println!("    {pprof}: the profile, for `go tool pprof`");
    Ok(ExitCode::SUCCESS)
}
