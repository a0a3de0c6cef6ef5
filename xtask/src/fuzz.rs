//! `cargo xtask fuzz`: runs the parsers on mutated input, for some time or for some number of inputs.
//!
//! It must not know the checks. It runs a test of `tests/` for longer than usual, each boundary in a process
//! of its own. It saves inputs that fail, and updates the table of docs/fuzzing.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::fuzz_table::Row;
use crate::{cargo, fuzz_table, process, test, workspace};

/// The time in seconds after which an input counts as hanging.
const MOST_SECONDS: u64 = 60;

/// Look for inputs that make a parser fail.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The total time in minutes for all boundaries.
    #[arg(long, value_name = "N", conflicts_with = "inputs")]
    minutes: Option<f64>,
    /// The number of inputs for each boundary; docs/fuzzing.md gets the result.
    #[arg(long, value_name = "N")]
    inputs: Option<u64>,
    /// Begin with this seed, which a failure printed, instead of a new one.
    #[arg(long)]
    seed: Option<u64>,
    /// Run only this boundary; may be given several times.
    #[arg(long, value_name = "BOUNDARY")]
    only: Vec<String>,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // Seeds are short, so that they are easy to type.
    let new = || now.map_or(1, |since| since.as_nanos() as u64 % 1_000_000_007);
    let seed = args.seed.unwrap_or_else(new);
    let program = build()?;
    let boundaries: Vec<String> = boundaries()?
        .into_iter()
        .filter(|name| args.only.is_empty() || args.only.contains(name))
        .collect();
    if boundaries.is_empty() {
        bail!("no boundary has this name: see fuzz/corpus");
    }
    let minutes = args.minutes.unwrap_or(1.0);
    let seconds = (minutes * 60.0 / boundaries.len() as f64).ceil() as u64;
    let mut failures = Vec::new();
    for name in &boundaries {
        let amount = match args.inputs {
            Some(inputs) => ("HEAPTRACE_FUZZ_INPUTS", inputs),
            None => ("HEAPTRACE_FUZZ_SECONDS", seconds),
        };
        match one(&program, name, seed, amount) {
            Ok(row) => {
                println!("{row}");
                if args.inputs.is_some() {
                    fuzz_table::write(&row)?;
                }
            }
            Err(error) => {
                eprintln!("xtask: {name}: {error:#}");
                failures.push(name.as_str());
            }
        }
    }
    if failures.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "xtask: failed: {}; after the fix, add the inputs to fuzz/corpus/NAME, so that they stay tests",
        failures.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

/// The boundaries, by the names of their corpus folders.
fn boundaries() -> Result<Vec<String>> {
    let folder = workspace::root().join("fuzz/corpus");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf> {
    let mut command = cargo::host("test");
    command.args(["--profile", "fuzz", "--package", "heaptrace-tests"]);
    command.args(["--test", "fuzz", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    let programs = test::executables(&process::output(&mut command)?)?;
    programs
        .into_iter()
        .next()
        .context("cargo built no test `fuzz`")
}

/// Runs one boundary.
fn one(program: &Path, name: &str, seed: u64, amount: (&str, u64)) -> Result<Row> {
    let folder = workspace::target_dir().join("fuzz-found");
    fs::create_dir_all(&folder)?;
    let current = folder.join(format!("{name}.at-hand"));
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(["--exact", "every_boundary_holds", "--nocapture"])
        .env("HEAPTRACE_FUZZ_BOUNDARY", name)
        .env("HEAPTRACE_FUZZ_SEED", seed.to_string())
        .env("HEAPTRACE_FUZZ_FOLDER", &folder)
        .env(amount.0, amount.1.to_string())
        .env("CARGO_MANIFEST_DIR", workspace::root().join("tests"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let mut last = (Vec::new(), Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(200));
        let input = fs::read(&current).unwrap_or_default();
        if input != last.0 {
            last = (input, Instant::now());
        } else if last.1.elapsed() > Duration::from_secs(MOST_SECONDS) {
            child.kill()?;
            child.wait()?;
            bail!("it hangs with the input {}", save(&current, name, seed)?);
        }
    };
    let mut printed = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        std::io::Read::read_to_string(&mut stdout, &mut printed)?;
    }
    if !status.success() {
        print!("{printed}");
        // A failed process saved its input already. A killed one left it in the file of the current input.
        if status.code().is_none() {
            bail!("{status}, with the input {}", save(&current, name, seed)?);
        }
        bail!("it failed; the input is named above");
    }
    let line = printed.lines().find_map(|line| line.split_once("fuzz "));
    let (_, line) = line.context("the test printed no result")?;
    Row::parse(line, began.elapsed())
}

/// Saves the last input of a killed process. The file has a length and the bytes.
fn save(current: &Path, name: &str, seed: u64) -> Result<String> {
    let content = fs::read(current).with_context(|| format!("no {}", current.display()))?;
    let (head, bytes) = content.split_first_chunk::<8>().context("no input")?;
    let length = usize::try_from(u64::from_le_bytes(*head))?;
    let path = current.with_file_name(format!("{name}-{seed}-died"));
    fs::write(&path, bytes.get(..length).unwrap_or(bytes))?;
    Ok(path.display().to_string())
}
