//! `cargo xtask busy`: traces all processes of a busy machine for a minute, and measures the effect on the
//! work.
//!
//! It must not know how heaptrace works. It runs the same work without and with heaptrace, and reads the
//! report.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::programs;
use crate::{apt, process, run, workspace};

/// The number of files of the C++ project that is compiled.
const SOURCES: u32 = 6;

/// The number of rounds of redis's own benchmark.
const SERVED: u32 = 2;

/// Short commands: shells, one after another, that start three programs each.
const SHORT: &str = "i=0; while [ $i -lt 500 ]; do sh -c '/bin/true; /bin/ls / | /usr/bin/sort' > /dev/null || exit 1; \
                     i=$((i + 1)); done";

/// The names of the programs that must be in the report.
const EXPECTED: [&str; 6] = [
    "cc1plus",
    "redis-server",
    "redis-benchmark",
    "sh",
    "ls",
    "sort",
];

/// Trace all processes of a busy machine for some time.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The shortest duration of the trace; it lasts longer if the work does.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Work that keeps the machine busy.
struct Work {
    name: &'static str,
    command: Vec<OsString>,
    /// The number of repetitions, one after another.
    times: u32,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    apt::ensure(&programs::PACKAGES, "for what keeps the machine busy")?;
    run::build_release(None)?;
    let folder = workspace::target_dir().join("xtask/busy");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let all = [
        Work {
            name: "compiles C++",
            command: programs::cplusplus(&folder, 0)?,
            times: SOURCES,
        },
        Work {
            name: "serves redis",
            command: programs::redis(&folder, 20_000)?,
            times: SERVED,
        },
        Work {
            name: "2,000 short commands",
            command: ["sh", "-c", SHORT].map(OsString::from).into(),
            times: 1,
        },
    ];
    println!("==> Without heaptrace");
    let untraced = together(&all)?;
    println!("==> With heaptrace record --all");
    let data = folder.join("all.data");
    let _ = fs::remove_file(&data);
    let began = Instant::now();
    let mut tracer = start(&data)?;
    let traced = together(&all);
    // The trace lasts at least the requested time, and until the work is done.
    thread::sleep(Duration::from_secs(args.seconds).saturating_sub(began.elapsed()));
    process::run(process::as_root("kill", &[])?.args(["-INT", &tracer.id().to_string()]))?;
    let status = tracer.wait().context("cannot wait for heaptrace")?;
    let traced = traced?;
    if !status.success() {
        bail!("heaptrace failed: {status}");
    }
    println!(
        "\n{:<24} {:>12} {:>10} {:>10}",
        "work", "untraced, s", "traced, s", "slow-down"
    );
    for ((work, before), after) in all.iter().zip(&untraced).zip(&traced) {
        let (before, after) = (before.as_secs_f64(), after.as_secs_f64());
        println!(
            "{:<24} {before:>12.2} {after:>10.2} {:>9.2}×",
            work.name,
            after / before
        );
    }
    for by in ["process", "cgroup"] {
        println!("\n==> heaptrace report --by {by}");
        heaptrace(&["report", "--by", by], &data)?;
    }
    let svg = folder.join("all.svg");
    heaptrace(
        &[
            "flamegraph",
            "--by",
            "process",
            "-o",
            &svg.to_string_lossy(),
        ],
        &data,
    )?;
    println!(
        "\n==> Flame graph with processes at the root: {}",
        svg.display()
    );
    let mut command = Command::new(workspace::heaptrace_binary());
    command
        .args(["report", "--format", "json", "--top", "1"])
        .arg(&data);
    judge(
        &serde_json::from_str(&process::output(&mut command)?).context("the report is not JSON")?,
    )?;
    println!("the report has every expected process, and the processes add up to the totals");
    Ok(ExitCode::SUCCESS)
}

/// Starts heaptrace for all processes, and waits until it traces.
fn start(data: &Path) -> Result<Child> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let args = ["record", "--all", "-o"].map(OsString::from);
    let tracer = run::heaptrace(&[&args[..], &[data.into()]].concat())?
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start heaptrace")?;
    let began = Instant::now();
    while !data.exists() {
        if began.elapsed() > PATIENCE {
            bail!("heaptrace did not begin to trace");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(tracer)
}

/// Does all work in parallel, and returns the duration of each; an error if one fails.
fn together(all: &[Work]) -> Result<Vec<Duration>> {
    thread::scope(|scope| {
        let running: Vec<_> = all
            .iter()
            .map(|work| scope.spawn(move || alone(work)))
            .collect();
        running
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|_| bail!("a thread failed")))
            .collect()
    })
}

fn alone(work: &Work) -> Result<Duration> {
    let (program, args) = work.command.split_first().context("an empty command")?;
    let began = Instant::now();
    for _ in 0..work.times {
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        process::run(&mut command)?;
    }
    let took = began.elapsed();
    println!("    {}: {:.2} s", work.name, took.as_secs_f64());
    Ok(took)
}

fn heaptrace(args: &[&str], data: &Path) -> Result<()> {
    process::run(
        Command::new(workspace::heaptrace_binary())
            .args(args)
            .arg(data),
    )
}

/// Checks that the report has every expected process and adds up.
fn judge(report: &Value) -> Result<()> {
    let processes = report["processes"].as_array().context("no processes")?;
    let of = |it: &Value, name: &str| it["totals"][name].as_u64().unwrap_or(0);
    for name in EXPECTED {
        let is_it = |it: &&Value| it["command"].as_str() == Some(name);
        let allocations: u64 = processes
            .iter()
            .filter(is_it)
            .map(|it| of(it, "allocations"))
            .sum();
        if allocations == 0 {
            bail!("no allocation of {name} was seen");
        }
        println!("    {name}: {allocations} allocations");
    }
    for name in ["allocations", "frees"] {
        let sum: u64 = processes.iter().map(|it| of(it, name)).sum();
        let total = report["totals"][name].as_u64().unwrap_or(0);
        // In a sampled run each number is rounded on its own.
        if sum.abs_diff(total) > processes.len() as u64 {
            bail!("total {name}: {total}, but the processes have {sum}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(total: u64) -> Value {
        let processes: Vec<Value> = EXPECTED
            .iter()
            .map(|name| json!({ "command": name, "totals": { "allocations": 10, "frees": 4 } }))
            .collect();
        json!({ "processes": processes, "totals": { "allocations": total, "frees": 24 } })
    }

    /// Check that a report that adds up apart from rounding is accepted. One that does not, or that lacks an
    /// expected process, is refused.
    #[test]
    fn reports_are_judged() {
        judge(&report(60)).unwrap();
        judge(&report(63)).unwrap();
        assert!(judge(&report(80)).is_err());
        let mut without = report(60);
        without["processes"][1]["command"] = json!("other");
        let error = judge(&without).unwrap_err();
        assert!(error.to_string().contains("redis-server"), "{error}");
    }
}
