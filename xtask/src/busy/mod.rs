//! `cargo xtask busy`: traces all processes of a busy machine, and measures the effect on the work.
//!
//! It must not know how heaptrace works. It runs the same work without and with heaptrace, and reads the
//! report.

mod judge;
mod work;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bench::stats::Spread;
use crate::bench::{mode, programs};
use crate::{apt, process, run, workspace};
use judge::judge;
use work::{Done, Work};

/// Trace all processes of a busy machine, and measure the effect on the work.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The number of rounds; each does all work without heaptrace, and then with it.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The shortest duration of each half of a round; the work is repeated until then.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// The same for the half without heaptrace, if it is to be another one.
    #[arg(long)]
    untraced_seconds: Option<u64>,
    /// Do one work after another, and not all at once.
    #[arg(long)]
    apart: bool,
    /// Trace processes from birth.
    #[arg(long)]
    from_birth: bool,
    /// Allow the fast path.
    #[arg(long)]
    fast: bool,
    /// Do other work: a fork bomb, within a limit of 200 processes.
    #[arg(long)]
    fork_bomb: bool,
}

/// Runs the task.
pub fn run(args: &Args) -> Result<ExitCode> {
    apt::ensure(&programs::PACKAGES, "for what keeps the machine busy")?;
    run::build_release(None)?;
    let folder = workspace::target_dir().join("xtask/busy");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (all, programs) = if args.fork_bomb {
        (work::fork_bomb()?, work::BOMBS)
    } else {
        (work::mix(&folder)?, work::MIX)
    };
    let data = folder.join("all.data");
    let mut untraced = Vec::new();
    let mut traced = Vec::new();
    // Works that end sooner than others would leave the machine to these.
    let at_least = Duration::from_secs(args.seconds);
    let untraced_at_least = Duration::from_secs(args.untraced_seconds.unwrap_or(args.seconds));
    for round in 1..=args.rounds {
        println!("==> Round {round} of {} without heaptrace", args.rounds);
        untraced.push(work::round(&all, args.apart, untraced_at_least)?);
        println!("==> Round {round} of {} with it", args.rounds);
        let _ = fs::remove_file(&data);
        let mut tracer = start(args, &data)?;
        let done = work::round(&all, args.apart, at_least);
        process::signal(&tracer, "INT")?;
        let status = tracer.wait().context("cannot wait for heaptrace")?;
        traced.push(done?);
        if !status.success() {
            bail!("heaptrace failed: {status}");
        }
    }
    print(&all, &untraced, &traced)?;
    for by in ["process", "cgroup"] {
        println!("\n==> heaptrace report --by {by}");
        heaptrace(&["report", "--by", by], &data)?;
    }
    let svg = folder.join("all.svg");
    let picture = svg.to_string_lossy();
    heaptrace(&["flamegraph", "--by", "process", "-o", &picture], &data)?;
    println!("\n==> Flame graph with processes at the root: {picture}");
    let mut command = Command::new(workspace::heaptrace_binary());
    command
        .args(["report", "--format", "json", "--top", "1"])
        .arg(&data);
    let report = process::output(&mut command)?;
    judge(
        &serde_json::from_str(&report).context("the report is not JSON")?,
        &programs,
        args.from_birth,
    )?;
    println!("the report has every expected process, and the processes add up to the totals");
    Ok(ExitCode::SUCCESS)
}

/// Starts heaptrace for all processes, and waits until it traces.
fn start(args: &Args, data: &Path) -> Result<Child> {
    let mut words = ["record", "--all", "-o"].map(OsString::from).to_vec();
    words.push(data.into());
    let options = [(args.from_birth, "--from-birth"), (args.fast, "--fast")];
    let given = options.iter().filter(|(is_given, _)| *is_given);
    words.extend(given.map(|(_, option)| OsString::from(option)));
    let tracer = run::heaptrace(&words)?
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start heaptrace")?;
    mode::wait_for(data)?;
    Ok(tracer)
}

/// Prints the effect on each work: medians, and the median and range of the ratios of each round.
fn print(all: &[Work], untraced: &[Vec<Done>], traced: &[Vec<Done>]) -> Result<()> {
    println!(
        "\n{:<26} {:>10} {:>10} {:>22}",
        "work", "untraced", "traced", "ratio"
    );
    for (index, work) in all.iter().enumerate() {
        let of = |rounds: &[Vec<Done>], value: fn(&Done) -> Option<f64>| -> Vec<f64> {
            let values = rounds.iter().filter_map(|round| round.get(index));
            values.filter_map(value).collect()
        };
        let took = |done: &Done| Some(done.took.as_secs_f64());
        row(work.name, "s", &of(untraced, took), &of(traced, took))?;
        let p99 = |done: &Done| done.p99_ms;
        let (before, after) = (of(untraced, p99), of(traced, p99));
        if !before.is_empty() {
            row("  99 % of answers within", "ms", &before, &after)?;
        }
    }
    if all.len() > 1 {
        let ratios: Vec<f64> = untraced.iter().zip(traced).map(mean_ratio).collect();
        let ratio = Spread::of(&ratios).context("nothing was measured")?;
        println!(
            "{:<26} {:>43.2} ({:.2}–{:.2})",
            "all, geometric mean", ratio.median, ratio.min, ratio.max
        );
    }
    Ok(())
}

/// The geometric mean of the ratios of a round: works that wait less because others wait more don't change it.
fn mean_ratio((untraced, traced): (&Vec<Done>, &Vec<Done>)) -> f64 {
    let ratios = untraced
        .iter()
        .zip(traced)
        .map(|(untraced, traced)| traced.took.as_secs_f64() / untraced.took.as_secs_f64());
    let logarithms: Vec<f64> = ratios.map(f64::ln).collect();
    (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
}

fn row(name: &str, unit: &str, before: &[f64], after: &[f64]) -> Result<()> {
    let of = |values: &[f64]| Spread::of(values).context("nothing was measured");
    let ratio = Spread::of_ratios(after, before).context("nothing was measured")?;
    println!(
        "{name:<26} {:>7.2} {unit:<2} {:>7.2} {unit:<2} {:>8.2} ({:.2}–{:.2})",
        of(before)?.median,
        of(after)?.median,
        ratio.median,
        ratio.min,
        ratio.max,
    );
    Ok(())
}

fn heaptrace(args: &[&str], data: &Path) -> Result<()> {
    process::run(
        Command::new(workspace::heaptrace_binary())
            .args(args)
            .arg(data),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that one work's gain makes up for another one's loss.
    #[test]
    fn gains_make_up_for_losses() {
        let round = |seconds: [u64; 2]| {
            let done = |seconds| Done {
                took: Duration::from_secs(seconds),
                p99_ms: None,
            };
            seconds.map(done).to_vec()
        };
        let ratio = mean_ratio((&round([10, 10]), &round([20, 5])));
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        let ratio = mean_ratio((&round([10, 10]), &round([20, 20])));
        assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
    }
}
