//! Tests of sampling, from the probe to the report: estimates are compared with a fixture's own counts.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Child, Heaptrace, Mode, Recording, Totals, Truth, c, c_preload, cpp, ready_pid,
};

/// Runs whose estimates are compared. A single run may be off by more: its standard error is an estimate, too, and is too
/// small if no block of the smallest sizes was sampled, as happens in one run of twenty.
const RUNS: usize = 5;

/// Fails unless in most runs every estimate is within four standard errors of the true value.
fn agree(runs: &[(Truth, Totals)]) -> Result<()> {
    let compare = |what: &str, of: fn(&Truth, &Totals) -> [u64; 3]| {
        let mut off: Vec<f64> = Vec::new();
        for (truth, totals) in runs {
            let [truth, estimate, error] = of(truth, totals);
            println!("{what}: {estimate} ± {error}, in truth {truth}");
            off.push((estimate as f64 - truth as f64) / error.max(1) as f64);
        }
        off.sort_by(f64::total_cmp);
        let median = off.get(off.len() / 2).copied();
        ensure!(
            median.is_some_and(|off| off.abs() <= 4.0),
            "{what}: off by {off:.1?} standard errors"
        );
        Ok(())
    };
    compare("allocations", |truth, it| {
        [truth.allocations, it.allocations, it.allocations_error]
    })?;
    compare("allocated bytes", |truth, it| {
        let error = it.allocated_bytes_error;
        [truth.allocated_bytes, it.allocated_bytes, error]
    })?;
    compare("live allocations", |truth, it| {
        let error = it
            .live_allocations_error
            .max(it.left_at_exit_allocations_error);
        [truth.live_allocations, it.unfreed_allocations(), error]
    })?;
    compare("live bytes", |truth, it| {
        [
            truth.live_bytes,
            it.unfreed_bytes(),
            it.live_bytes_error.max(it.left_at_exit_bytes_error),
        ]
    })
}

fn sampled(options: &[&str]) -> Result<Recording> {
    let recording = Heaptrace::tracing()?.record(options, &[c("sampled")?])?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording)
}

/// Check that estimates are within four standard errors of the true counts in most runs, also with reallocs of sampled and
/// of other blocks, and that the standard errors are small.
#[test]
fn estimates_agree_with_the_truth() -> Result<()> {
    let (mut runs, mut sites) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let recording = sampled(&["--sample", "16KiB"])?;
        let (report, truth) = (&recording.report, recording.truth("main")?);
        assert_eq!(report.mode, Mode::Sampled { mean_bytes: 16384 });
        let totals = &report.totals;
        assert!(report.quality.samples < truth.allocations / 3);
        assert!(totals.allocated_bytes_error * 20 < totals.allocated_bytes);
        assert!(totals.allocations_error * 8 < totals.allocations);
        sites.push((truth.clone(), report.truth(Some(truth.pid))));
        runs.push((truth.clone(), *totals));
    }
    agree(&runs)?;
    agree(&sites)
}

/// Check that a rate without `--sample` follows the load: a program that allocates little is sampled at the finest rate,
/// one that allocates a lot within the limit of samples.
#[test]
fn the_rate_follows_the_load() -> Result<()> {
    const FINEST: u64 = 512;
    const FIRST: u64 = 4096;
    const MOST_PER_SECOND: u64 = 1000;
    for (pause, is_busy) in [(Some("1000"), false), (None, true)] {
        let here = Heaptrace::tracing()?;
        let mut target = Child::spawn(c("churn")?.command().args(pause))?;
        let pid = ready_pid(&target.line()?)?;
        let (pid_text, limit) = (pid.to_string(), MOST_PER_SECOND.to_string());
        let options = ["--pid", &pid_text, "--max-samples-per-second", &limit];
        let mut tracer = here.start_record(&options)?;
        here.wait_attached(&mut tracer, pid)?;
        // Time is the point: rates change every quarter of a second.
        thread::sleep(Duration::from_secs(4));
        tracer.signal(libc::SIGINT)?;
        let report = here.finish(tracer)?.report;
        target.wait()?;

        assert_eq!(report.mode, Mode::Sampled { mean_bytes: FINEST });
        let rates = &report.rates;
        assert_eq!(rates.first().map(|it| it.mean_bytes), Some(FIRST));
        let of_process = |pid| rates.iter().rfind(|it| it.pid == pid);
        let last = of_process(Some(pid)).or_else(|| of_process(None));
        let last = last.map_or(0, |it| it.mean_bytes);
        if is_busy {
            assert!(last > FIRST, "{rates:?}");
        } else {
            assert_eq!(last, FINEST, "{rates:?}");
        }
        // Before the first change there may be more.
        let seconds = report.duration_ns.div_ceil(1_000_000_000);
        let samples = report.quality.samples;
        assert!(samples > 0 && samples < 50 * MOST_PER_SECOND * seconds);
    }
    Ok(())
}

/// Check that calls inside of other calls are not sampled: a `realloc` that calls `malloc` would count twice, in most
/// samples of this fixture.
#[test]
fn functions_count_once_each() -> Result<()> {
    let recording = sampled(&["--sample", "4KiB"])?;
    let (report, truth) = (&recording.report, recording.truth("main")?);
    ensure!(!truth.hooks.is_empty(), "the fixture reports no functions");
    for (function, (calls, bytes)) in &truth.hooks {
        let totals = report.within(function);
        let off = (
            totals.allocations.abs_diff(*calls),
            totals.allocated_bytes.abs_diff(*bytes),
        );
        ensure!(
            off.0 <= 5 * totals.allocations_error && off.1 <= 5 * totals.allocated_bytes_error,
            "{function}: {totals:?}, in truth {calls} of {bytes} bytes"
        );
    }
    Ok(())
}

/// Check that a call which begins in a function without a return probe, and continues in another function by a call or
/// a tail call, is drawn once. With two draws, most of the fixture's blocks would count twice.
#[test]
fn nested_functions_are_drawn_once() -> Result<()> {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let recording = Heaptrace::tracing()?.record(&["--sample", "16KiB"], &[cpp("handing")?])?;
        let (report, truth) = (&recording.report, recording.truth("main")?);
        report.check_nothing_lost()?;
        assert_eq!(report.quality.failed_allocations, 0);
        runs.push((truth.clone(), report.truth(Some(truth.pid))));
    }
    agree(&runs)
}

/// Check that a call through preloaded libraries that wrap the allocator is drawn once, also if they lie above each other.
/// With two draws, almost every large block would count twice. A sampled call whose inner calls were not all known lost its
/// sample.
#[test]
fn wrapped_calls_are_drawn_once() -> Result<()> {
    let header = c_preload("wrapper", "libwrapper.so", &[])?;
    let thin = c_preload("wrapper", "libwrapper-thin.so", &["-DNO_HEADER"])?;
    let [header, thin] = [header, thin].map(|it| it.path.display().to_string());
    let memusage = "/usr/lib/x86_64-linux-gnu/libmemusage.so".to_owned();
    for libraries in [
        memusage.clone(),
        header.clone(),
        format!("{header}:{thin}"),
        format!("{memusage}:{header}:{thin}"),
    ] {
        let fixture = c("sampled")?;
        let preload = format!("LD_PRELOAD={libraries}");
        let command = ["env".as_ref(), preload.as_ref(), fixture.path.as_os_str()];
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let recording = Heaptrace::tracing()?.record(&["--sample", "16KiB"], &command)?;
            let (report, truth) = (&recording.report, recording.truth("main")?);
            report.check_nothing_lost()?;
            assert_eq!(report.quality.stacks_broken, 0, "{libraries}");
            runs.push((truth.clone(), report.truth(Some(truth.pid))));
        }
        agree(&runs).with_context(|| libraries)?;
    }
    Ok(())
}

/// Check that sizes are counted exactly and not estimated: every call of the fixture is in the class of its size.
#[test]
fn sizes_are_exact() -> Result<()> {
    let rare = sampled(&["--sample", "1MiB"])?;
    let truth = rare.truth("main")?;
    let calls: u64 = rare.report.sizes.iter().map(|class| class.calls).sum();
    assert_eq!(calls, truth.allocations);
    let all = sampled(&["--exact"])?;
    assert_eq!(rare.report.sizes, all.report.sizes);
    assert!(all.report.sizes.len() > 8);
    for class in &all.report.sizes {
        assert!(class.min <= class.max && class.calls > 0);
    }
    Ok(())
}

/// Check that `--sample 1` counts exactly.
#[test]
fn a_mean_of_one_is_exact() -> Result<()> {
    for fixture in ["hooks", "reallocs"] {
        let recording = Heaptrace::tracing()?.record(&["--sample", "1"], &[c(fixture)?])?;
        let truth = recording.truth("main")?;
        assert_eq!(recording.report.mode, Mode::Exact);
        truth.matches(&recording.report.totals)?;
    }
    Ok(())
}

/// Check that with size limits only blocks of these sizes count, exactly, and that frees and reallocs of other blocks
/// count neither for them nor as untracked.
#[test]
fn other_sizes_are_excluded() -> Result<()> {
    let fixture = c("sampled")?;
    let recording = Heaptrace::tracing()?.record(
        &["--min-size", "100", "--max-size", "2KiB"],
        &[fixture.path.as_os_str(), "100".as_ref(), "2048".as_ref()],
    )?;
    let (report, truth) = (&recording.report, recording.truth("main")?);
    report.check_nothing_lost()?;
    assert_eq!(report.mode, Mode::Exact);
    assert!(truth.allocations > 1_000);
    truth.matches(&report.totals)?;
    assert_eq!(report.quality.untracked_frees, 0);
    Ok(())
}
