//! `cargo xtask differential`: runs random programs beside heaptrace, and compares what they know of themselves with what
//! heaptrace says.
//!
//! It must not know how heaptrace works. Programs count their own allocations by site, a preloaded library counts them a
//! second time, and heaptrace's report must agree with both, to the byte and to the function.

mod claims;
mod compare;
mod experiment;
mod feature;
mod generate;
mod print;
mod program;
mod seen;
mod shrink;
mod source;
mod source_c;
mod source_rust;
mod summary;
mod trial;
mod variant;
mod workshop;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use crate::{apt, process, run, workspace};
use experiment::Experiment;
use feature::{Feature, Features};
use summary::Summary;
use workshop::Workshop;

/// What the programs are made with, and what is preloaded into them.
const PACKAGES: [&str; 8] = [
    "gcc",
    "g++",
    "clang",
    "lld",
    "libc6-dev",
    "libjemalloc-dev",
    "libgoogle-perftools-dev",
    "libmimalloc-dev",
];

/// The variable by which the harness finds heaptrace.
const BINARY: &str = "HEAPTRACE_BIN";

/// The environment variables that programs and their compilers need, and that sudo would drop.
const PASSED_ON: [&str; 5] = [
    "PATH",
    "CARGO_TARGET_DIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
];

/// Look for programs of which heaptrace reports wrong numbers.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The time in minutes; programs from a new seed each time.
    #[arg(long, value_name = "N", conflicts_with = "programs")]
    minutes: Option<f64>,
    /// The number of programs, instead of a time.
    #[arg(long, value_name = "N")]
    programs: Option<u64>,
    /// Begin with this seed, which a difference printed. Alone: run only its program.
    #[arg(long)]
    seed: Option<u64>,
    /// Leave these out.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FEATURE")]
    without: Vec<Feature>,
    /// Leave out everything but these.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FEATURE")]
    only: Vec<Feature>,
    /// The most seconds to make the program of a difference smaller.
    #[arg(long, default_value_t = 60, value_name = "N")]
    shrink: u64,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    apt::ensure(&PACKAGES, "for the programs")?;
    if env::var_os(BINARY).is_none() || !process::is_root() {
        return as_root();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // Seeds are short, so that they are easy to type.
    let new = || now.map_or(1, |since| since.as_nanos() as u64 % 1_000_000_007);
    let first = args.seed.unwrap_or_else(new);
    let most = match (args.programs, args.minutes, args.seed) {
        (Some(programs), ..) => programs,
        (None, None, Some(_)) => 1,
        _ => u64::MAX,
    };
    let limit = Duration::from_secs_f64(args.minutes.unwrap_or(1.0).clamp(0.0, 1e6) * 60.0);
    let is_timed = args.minutes.is_some() || most == u64::MAX;
    let workshop = Workshop::open()?;
    let mut features = Features {
        without: args.without.clone(),
        only: args.only.clone(),
    };
    for allocator in variant::Allocator::ALL {
        if !workshop.has(allocator) {
            println!("{allocator:?} is not installed: left out");
            features.without.push(allocator.feature());
        }
    }
    let mut summary = Summary::begin();
    let mut seed = first;
    while summary.programs() < most && !(is_timed && summary.elapsed() > limit) {
        let began = Instant::now();
        let experiment = Experiment::new(&workshop, &features, seed);
        let result = experiment.run(Duration::from_secs(args.shrink))?;
        summary.add(seed, result, began.elapsed());
        seed += 1;
    }
    println!("{summary}");
    if summary.programs() == 0 {
        bail!("no program ran");
    }
    Ok(if summary.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds heaptrace and runs this task anew, as root and with the path of the build.
fn as_root() -> Result<ExitCode> {
    let mut variables = Vec::new();
    match env::var_os(BINARY) {
        Some(binary) => variables.push((BINARY, binary)),
        None => {
            run::build_release(None)?;
            variables.push((BINARY, OsString::from(workspace::heaptrace_binary())));
        }
    }
    for name in PASSED_ON {
        variables.extend(env::var_os(name).map(|value| (name, value)));
    }
    let package = workspace::root().join("xtask");
    variables.push(("CARGO_MANIFEST_DIR", package.into()));
    let mut command = process::as_root(env::current_exe()?, &variables)?;
    command.args(env::args_os().skip(1));
    let status = process::status(&mut command)?;
    Ok(ExitCode::from(process::exit_code(status)))
}
