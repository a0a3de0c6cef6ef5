//! `cargo xtask bench`: what tracing costs, measured on real programs in turns, written to docs/benchmarks.md.
//!
//! It must not know how heaptrace traces: it runs the release build from outside and reads what the programs print.

pub mod machine;
pub mod stats;
pub mod table;
pub mod workload;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{process, run, workspace};
use machine::Machine;
use table::{Row, Runs};
use workload::WORKLOADS;

/// Where the results are written to, below the repository's root.
const PAGE: &str = "docs/benchmarks.md";

/// A way to run a workload.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Its name in the table.
    pub name: &'static str,
    /// What it means, in one sentence.
    pub meaning: &'static str,
    how: How,
}

/// What heaptrace does while the program runs.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Nothing.
    Alone,
    /// It traces another program.
    Beside,
    /// It traces this one, with these options.
    Traced(&'static [&'static str]),
}

/// The mode that no tracing can be cheaper than.
pub const FLOOR: &str = "empty probes";

/// The modes, measured in this order, over and over. The first is what the others are compared with.
pub const MODES: [Mode; 5] = [
    Mode {
        name: "untraced",
        meaning: "The program alone.",
        how: How::Alone,
    },
    Mode {
        name: "bystander",
        meaning: "The program alone, while heaptrace traces another one that uses the same C library.",
        how: How::Beside,
    },
    Mode {
        name: FLOOR,
        meaning: "Probes in the same places whose programs return at once: what the kernel takes for the traps, the floor.",
        how: How::Traced(&["--probes", "empty"]),
    },
    Mode {
        name: "sampled",
        meaning: "One allocation in 512 KiB recorded: almost all are not.",
        how: How::Traced(&["--sample", "512KiB"]),
    },
    Mode {
        name: "exact",
        meaning: "Every allocation recorded with its stack.",
        how: How::Traced(&[]),
    },
];

/// Measure what tracing costs.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How often each mode is measured.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long one measurement takes.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Only workloads whose names contain this.
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Print the results and write no file.
    #[arg(long)]
    dry_run: bool,
}

/// Run the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    run::build_release(None)?;
    let machine = Machine::look()?;
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        if args
            .filter
            .as_ref()
            .is_some_and(|filter| !workload.name.contains(filter.as_str()))
        {
            continue;
        }
        let mut counts = vec![1, machine.cpus];
        counts.dedup();
        counts.truncate(if workload.depth.is_some() { 1 } else { 2 });
        for threads in counts {
            let command = (workload.command)(args.seconds, threads)?;
            rows.push(Row {
                workload: workload.name,
                threads,
                modes: measure(workload.name, &command, args.rounds)?,
            });
        }
    }
    if rows.is_empty() {
        bail!("no workload has such a name");
    }
    let page = table::page(&machine, args.rounds, args.seconds, &rows);
    println!("\n{page}");
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let path = workspace::root().join(PAGE);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    println!("Written to {}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// Run the command in every mode, in turns, so that a machine that grows slower does so for all of them.
fn measure(name: &str, command: &[OsString], rounds: u32) -> Result<Vec<Runs>> {
    let mut runs = vec![Runs::default(); MODES.len()];
    for round in 1..=rounds {
        for (mode, runs) in MODES.iter().zip(&mut runs) {
            let (nanoseconds, lost) = measure_once(mode, command)
                .with_context(|| format!("measuring {name}, {}", mode.name))?;
            println!(
                "    {name}, round {round} of {rounds}, {}: {nanoseconds:.1} ns",
                mode.name
            );
            runs.nanoseconds.push(nanoseconds);
            runs.lost += lost;
        }
    }
    Ok(runs)
}

/// Nanoseconds per operation, and how many events were lost.
fn measure_once(mode: &Mode, command: &[OsString]) -> Result<(f64, u64)> {
    match mode.how {
        How::Alone => Ok((alone(command)?, 0)),
        How::Beside => {
            let data = data_file()?;
            let args = ["record", "-o"].map(OsString::from);
            let other = ["--", "sleep", "600"].map(OsString::from);
            let mut tracer = run::heaptrace(&[&args[..], &[data.clone().into()], &other].concat())?
                .stderr(Stdio::null())
                .spawn()
                .context("cannot start heaptrace")?;
            let measured = wait_for(&data).and_then(|()| alone(command));
            // Passed on to the other program, by sudo where heaptrace runs under it.
            process::run(process::as_root("kill", &[])?.arg(tracer.id().to_string()))?;
            tracer.wait().context("cannot wait for heaptrace")?;
            Ok((measured?, 0))
        }
        How::Traced(options) => traced(options, command),
    }
}

/// Nanoseconds per operation of a command that nobody traces.
fn alone(command: &[OsString]) -> Result<f64> {
    let (program, args) = command.split_first().context("an empty command")?;
    nanoseconds(&process::output(Command::new(program).args(args))?)
}

/// Waits until a run has begun: its data file appears then.
fn wait_for(data: &Path) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let began = Instant::now();
    while !data.exists() {
        if began.elapsed() > PATIENCE {
            bail!("heaptrace does not begin to trace");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn traced(options: &[&str], command: &[OsString]) -> Result<(f64, u64)> {
    let data = data_file()?;
    let mut args: Vec<OsString> = vec!["record".into(), "-o".into(), data.clone().into()];
    args.extend(options.iter().map(OsString::from));
    args.push("--".into());
    args.extend_from_slice(command);
    let printed = process::output(&mut run::heaptrace(&args)?)?;
    let lost = if data.exists() { lost(&data)? } else { 0 };
    Ok((nanoseconds(&printed)?, lost))
}

fn data_file() -> Result<PathBuf> {
    let path = workspace::target_dir().join("xtask/bench.data");
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(path),
    }
}

/// The events that the run lost: a fast tracer that loses is no fast tracer.
fn lost(data: &Path) -> Result<u64> {
    let mut command = Command::new(workspace::heaptrace_binary());
    command.args(["report", "--format", "json"]).arg(data);
    lost_in(&process::output(&mut command)?)
}

fn lost_in(report: &str) -> Result<u64> {
    let report: Value = serde_json::from_str(report).context("the report is no JSON")?;
    let lost = report["quality"]["lost"]
        .as_object()
        .context("the report has no quality.lost")?;
    Ok(lost.values().filter_map(Value::as_u64).sum())
}

/// The figure that every workload prints of itself.
fn nanoseconds(printed: &str) -> Result<f64> {
    printed
        .lines()
        .find_map(|line| line.strip_prefix("ns_per_operation "))
        .and_then(|number| number.trim().parse().ok())
        .with_context(|| format!("the workload printed no ns_per_operation: {printed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a workload's figure is found among its other lines, and that its absence is an error.
    #[test]
    fn figures_are_read() {
        let figure = nanoseconds("hello\nns_per_operation 7.250\noperations 9\n").unwrap();
        assert!((figure - 7.25).abs() < 1e-9);
        assert!(nanoseconds("operations 9\n").is_err());
    }

    /// Check that every reason of loss counts, and that a report without the counters is not taken for one without loss.
    #[test]
    fn losses_of_all_reasons_add_up() {
        let report = r#"{"quality": {"lost": {"ring_full": 2, "live_full": 3}}}"#;
        assert_eq!(lost_in(report).unwrap(), 5);
        assert!(lost_in(r#"{"quality": {}}"#).is_err());
    }
}
