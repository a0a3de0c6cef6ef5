//! `cargo xtask soak`: runs heaptrace for a long time on a machine that keeps starting programs, and watches
//! its memory.
//!
//! It must not know how heaptrace works. It reads the agent's size from /proc, and the data file while it is
//! written.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{process, run, workspace};

/// A small memory budget, so that its limits are reached within the first minute.
const MEMORY: &str = "64MiB";

/// The time between two measurements.
const INTERVAL: Duration = Duration::from_secs(5);

/// The share of the run after which the agent must not grow.
const WARM_UP: f64 = 0.4;

/// The growth that is tolerated because of the allocator's fluctuation.
const SLACK: f64 = 0.10;

/// Short programs one after another, and a shell that starts others.
const SHORT: &str =
    "while :; do /bin/true; /bin/ls / > /dev/null; echo x | cat | sort > /dev/null; done";

/// Watch heaptrace's memory while it traces everything for a long time.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The duration in minutes.
    #[arg(long, default_value_t = 3.0)]
    minutes: f64,
    /// The number of shells that start short programs.
    #[arg(long, default_value_t = 2)]
    shells: u32,
    /// Fail if fewer processes than this ended.
    #[arg(long, default_value_t = 1000)]
    processes: u64,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Measurement {
    seconds: f64,
    /// The agent's resident memory in bytes.
    resident: u64,
    /// The size of the kernel's maps in bytes.
    maps: u64,
    /// The number of process records, and of ended processes that were merged.
    records: u64,
    merged: u64,
    allocations: u64,
    lost: u64,
    /// The size of the data file in bytes.
    file: u64,
}

/// A child that is killed when this is dropped.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        // Only the shell is killed; its programs end by themselves. It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    run::build_release(None)?;
    let steady = run::compile_c("xtask/bench/pair.c", &["-O2"])?;
    let data = workspace::target_dir().join("xtask/soak.data");
    let _ = fs::remove_file(&data);
    let seconds = args.minutes * 60.0;
    let mut options: Vec<OsString> = [
        "record",
        "--all",
        "--from-birth",
        "--max-memory",
        MEMORY,
        "--duration",
    ]
    .map(OsString::from)
    .into();
    options.push(format!("{}s", seconds.ceil()).into());
    options.extend(["-o".into(), data.clone().into()]);
    let mut tracer = run::heaptrace(&options)?
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start heaptrace")?;
    let mut loads = vec![start(
        Command::new(steady).args([&format!("{seconds}"), "1"]),
    )?];
    for _ in 0..args.shells {
        loads.push(start(Command::new("sh").args(["-c", SHORT]))?);
    }
    println!(
        "{:>8} {:>10} {:>10} {:>9} {:>9} {:>12} {:>12} {:>10}",
        "seconds", "agent", "maps", "records", "merged", "allocations", "lost", "file"
    );
    let begin = Instant::now();
    let mut measurements: Vec<Measurement> = Vec::new();
    while tracer
        .try_wait()
        .context("cannot wait for heaptrace")?
        .is_none()
    {
        std::thread::sleep(INTERVAL);
        let Some(agent) = agent(&data) else { continue };
        if let (Some(resident), Ok(report)) = (resident(agent), report(&data)) {
            let measurement = Measurement {
                seconds: begin.elapsed().as_secs_f64(),
                resident,
                file: fs::metadata(&data).map_or(0, |meta| meta.len()),
                ..read(&report)?
            };
            print(&measurement);
            measurements.push(measurement);
        }
    }
    drop(loads);
    let status = tracer.wait().context("cannot wait for heaptrace")?;
    if !status.success() {
        bail!("heaptrace failed: {status}");
    }
    judge(&measurements, seconds)?;
    let last = measurements
        .last()
        .map_or(0, |measurement| measurement.records + measurement.merged);
    println!("{last} processes came and went");
    if last < args.processes {
        bail!("that is fewer than {}", args.processes);
    }
    Ok(ExitCode::SUCCESS)
}

fn start(command: &mut Command) -> Result<Load> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run `{}`", process::describe(command)))?;
    Ok(Load(child))
}

/// The process that writes the file: heaptrace itself, not the sudo that it runs under.
fn agent(data: &Path) -> Option<u32> {
    let data = data.as_os_str().as_encoded_bytes();
    fs::read_dir("/proc").ok()?.find_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let writes = words.split(|byte| *byte == 0).any(|word| word == data);
        (name.trim_end() == "heaptrace" && writes).then_some(pid)
    })
}

fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// The report of the data so far.
fn report(data: &Path) -> Result<Value> {
    let mut command = Command::new(workspace::heaptrace_binary());
    command.args(["report", "--format", "json"]).arg(data);
    let text = process::query(&mut command).context("cannot read the data file")?;
    serde_json::from_str(&text).context("the report is not JSON")
}

fn read(report: &Value) -> Result<Measurement> {
    let processes = report["processes"].as_array().context("no processes")?;
    let lost = report["quality"]["lost"].as_object().context("no losses")?;
    Ok(Measurement {
        maps: report["quality"]["kernel_map_bytes"].as_u64().unwrap_or(0),
        records: processes.len() as u64,
        merged: processes
            .iter()
            .filter_map(|it| it["merged"].as_u64())
            .sum(),
        allocations: report["totals"]["allocations"].as_u64().unwrap_or(0),
        lost: lost.values().filter_map(Value::as_u64).sum(),
        ..Measurement::default()
    })
}

fn print(measurement: &Measurement) {
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    println!(
        "{:>8.0} {:>10} {:>10} {:>9} {:>9} {:>12} {:>12} {:>10}",
        measurement.seconds,
        mebibytes(measurement.resident),
        mebibytes(measurement.maps),
        measurement.records,
        measurement.merged,
        measurement.allocations,
        measurement.lost,
        mebibytes(measurement.file)
    );
}

/// Checks that the agent and the maps did not grow after the warm-up.
fn judge(measurements: &[Measurement], seconds: f64) -> Result<()> {
    let is_warm = |measurement: &&Measurement| measurement.seconds >= seconds * WARM_UP;
    let warm: Vec<&Measurement> = measurements.iter().filter(is_warm).collect();
    let [first, .., last] = warm.as_slice() else {
        bail!(
            "too short: only {} measurements after the warm-up",
            warm.len()
        );
    };
    for (what, before, after) in [
        ("the agent", first.resident, last.resident),
        ("the kernel's maps", first.maps, last.maps),
    ] {
        let growth = after as f64 / before as f64 - 1.0;
        println!("{what}: {:+.1} % since the warm-up", growth * 100.0);
        if growth > SLACK {
            bail!("{what} grew from {before} to {after} bytes");
        }
    }
    if last.allocations <= first.allocations {
        bail!("nothing was recorded after the warm-up");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(seconds: f64, resident: u64) -> Measurement {
        Measurement {
            seconds,
            resident,
            maps: 1000,
            allocations: seconds as u64,
            ..Measurement::default()
        }
    }

    /// Check that only growth after the warm-up fails, and that a run without measurements is an error.
    #[test]
    fn growth_after_the_warm_up_fails() {
        let flat = [
            measurement(10.0, 10),
            measurement(50.0, 1000),
            measurement(90.0, 1050),
        ];
        assert!(judge(&flat, 100.0).is_ok());
        let growing = [measurement(50.0, 1000), measurement(90.0, 1200)];
        let error = judge(&growing, 100.0).unwrap_err().to_string();
        assert!(error.contains("the agent grew"), "{error}");
        assert!(judge(&[], 100.0).is_err());
    }
}
