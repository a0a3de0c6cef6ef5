//! The binary behind `cargo xtask`: parses the task's name, runs it and returns its exit status.
//!
//! No stage of the flow. It knows the names of the tasks, and must not know how they work.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{
    accuracy, advisories, bench, build_ebpf, busy, check, dependencies, differential, fuzz,
    hostile, placements, release, run, runtimes, soak, stable_rustc, test, types, vm,
};

/// The development tasks of heaptrace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build heaptrace and run it with the given arguments, as root; without any, record the bundled demo.
    Run(run::Args),
    /// Install what the tests need, then run all of them.
    Test(test::Args),
    /// Check formatting, lints and the kernel object's digest.
    Check,
    /// Build the kernel object from source into heaptrace/bpf/.
    BuildEbpf(build_ebpf::Args),
    /// Measure the error of samples, and write docs/accuracy.md.
    Accuracy(accuracy::Args),
    /// Measure the cost of tracing, and write docs/benchmarks.md.
    Bench(bench::Args),
    /// Watch heaptrace's memory while it traces everything for a long time.
    Soak(soak::Args),
    /// Trace all processes of a busy machine, and measure the effect on the work.
    Busy(busy::Args),
    /// Measure the cost of probes at their locations, and write docs/placement.md.
    Placements(placements::Args),
    /// Run the fuzzers of all boundaries.
    Fuzz(fuzz::Args),
    /// Compare heaptrace's numbers with those of random programs that count for themselves.
    Differential(differential::Args),
    /// Run heaptrace, as root, on hostile programs and files, and write docs/hostile.md.
    Hostile(hostile::Args),
    /// Compare stacks of interpreted programs with the interpreters' own, and write docs/runtimes.md.
    Runtimes(runtimes::Args),
    /// Check licences, sources, versions and advisories of all dependencies.
    Dependencies,
    /// Update advisories.toml from a clone of RustSec's database.
    Advisories(advisories::Args),
    /// Build what is released: the binary, the list of what is in it, and their sums.
    Release,
    /// Compare the types of blocks with those that programs say, and write docs/types.md.
    Types(types::Args),
    /// Trace the fixtures on other kernels, in emulated machines.
    Vm(vm::Args),
}

fn main() -> ExitCode {
    // This comes before parsing, because cargo calls compiler wrappers with the arguments of rustc.
    if let Some(result) = stable_rustc::run_if_asked() {
        return exit_code(result);
    }
    let result = match Cli::parse().task {
        Task::Run(args) => run::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Check => check::run(),
        Task::BuildEbpf(args) => build_ebpf::run(&args),
        Task::Accuracy(args) => accuracy::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Soak(args) => soak::run(&args),
        Task::Busy(args) => busy::run(&args),
        Task::Placements(args) => placements::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Differential(args) => differential::run(&args),
        Task::Hostile(args) => hostile::run(&args),
        Task::Runtimes(args) => runtimes::run(&args),
        Task::Dependencies => dependencies::run(),
        Task::Advisories(args) => advisories::run(&args),
        Task::Release => release::run(),
        Task::Types(args) => types::run(&args),
        Task::Vm(args) => vm::run(&args),
    };
    exit_code(result)
}

fn exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
