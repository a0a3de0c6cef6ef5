//! `cargo xtask vm`: checks on other kernels that heaptrace counts exactly and unwinds. It boots Debian's
//! kernels in an emulated machine.
//!
//! It needs no KVM, and root only to install packages. The end-to-end tests define the fixtures, their truth
//! and the comparison.

mod console;
mod image;
mod kernel;
mod machine;
mod packages;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use heaptrace_tests::{Compiler, Fixture};

use crate::{apt, run, workspace};

/// Debian's oldest supported kernel, and the first one on which probes stay with their process.
const DEFAULT: [&str; 2] = ["6.1", "6.12"];

/// The C fixtures whose counts are compared, in this order. A fixture that depends on scheduling runs more
/// than once.
const COUNTED: [&str; 15] = [
    "hooks",
    "mappings",
    "reallocs",
    "failing",
    "nested",
    "longjmp",
    "deep",
    "threads",
    "forks",
    "spawns",
    "relatives",
    "relatives",
    "relatives",
    // It ends in a control group of version 2, for lack of memory.
    console::VICTIM,
    console::VICTIMS,
];

/// The fixtures whose stacks must be complete without frame pointers.
const UNWOUND: [&str; 2] = ["frames", "vdso"];

/// The compiler of these fixtures.
const COMPILER: Compiler = Compiler {
    name: "gcc",
    level: "-O2",
};

/// Trace the fixtures on other kernels.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Kernels by Debian's version names, such as 6.1, 6.12, 6.18 or 7.2; without any, 6.1 and 6.12.
    #[arg(value_name = "KERNEL")]
    kernels: Vec<String>,
    /// CPUs of the machine.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// More kernel parameters, such as preempt=full.
    #[arg(long, value_name = "PARAMETERS", default_value = "")]
    append: String,
}

/// The results on one kernel: one for each fixture, in order.
type Verdicts = Vec<(String, Result<u64>)>;

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    let versions: Vec<&str> = if args.kernels.is_empty() {
        DEFAULT.to_vec()
    } else {
        args.kernels.iter().map(String::as_str).collect()
    };
    apt::ensure_cc("for building heaptrace and the fixtures")?;
    let folder = workspace::target_dir().join("vm");
    let archive = packages::Kernels::new(&folder)?;
    archive.ensure_tools()?;
    let kernels = versions
        .iter()
        .map(|name| kernel::get(name, &archive, &folder))
        .collect::<Result<Vec<_>>>()?;
    run::build_release(None)?;
    let mut fixtures = COUNTED
        .iter()
        .map(|name| heaptrace_tests::c(name))
        .collect::<Result<Vec<Fixture>>>()?;
    for name in UNWOUND {
        fixtures.push(heaptrace_tests::c_optimized(name, COMPILER, &[])?);
    }
    let names: Vec<String> = fixtures.iter().map(Fixture::name).collect();
    let initrd = image::build(&folder, &workspace::heaptrace_binary(), &fixtures)
        .context("cannot build the machine's file system")?;

    let mut columns = Vec::new();
    for kernel in &kernels {
        println!("==> Linux {} ({})", kernel.name, kernel.package);
        let begin = Instant::now();
        let verdicts = machine::boot(&kernel.image, &initrd, args.cpus, &args.append)
            .and_then(|console| verdicts(&console, names.len()));
        println!("    {:.0} s", begin.elapsed().as_secs_f64());
        columns.push((kernel.name.as_str(), verdicts));
    }
    let is_ok = print(&names, &columns);
    Ok(if is_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn verdicts(text: &str, fixtures: usize) -> Result<Verdicts> {
    let runs = console::parse(text)?;
    anyhow::ensure!(
        runs.len() == fixtures,
        "only {} of {fixtures} fixtures ran",
        runs.len()
    );
    Ok(runs
        .into_iter()
        .map(|run| (run.fixture.clone(), run.verdict()))
        .collect())
}

/// Prints the table, and the differences below it. Returns true if there are none.
fn print(fixtures: &[String], columns: &[(&str, Result<Verdicts>)]) -> bool {
    let mut differences = Vec::new();
    print!("\n{:<12}", "fixture");
    for (kernel, _) in columns {
        print!("{kernel:>12}");
    }
    println!();
    for (row, fixture) in fixtures.iter().enumerate() {
        print!("{fixture:<12}");
        for (kernel, verdicts) in columns {
            let verdict = verdicts.as_ref().map(|all| all.get(row));
            let word = match verdict {
                Ok(Some((_, Ok(_)))) => "ok",
                Ok(Some((_, Err(error)))) => {
                    differences.push(format!("{kernel}, {fixture}: {error:#}"));
                    "DIFFERS"
                }
                Ok(None) | Err(_) => "-",
            };
            print!("{word:>12}");
        }
        println!();
    }
    for (kernel, verdicts) in columns {
        if let Err(error) = verdicts {
            differences.push(format!("{kernel}: {error:#}"));
        }
    }
    for difference in &differences {
        println!("\n{difference}");
    }
    differences.is_empty()
}
