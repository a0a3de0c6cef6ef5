//! Java frames in stacks, compared with the virtual machine's own, and how many stacks are whole.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use anyhow::{Result, ensure};
use heaptrace_tests::{
    Agreement, Heaptrace, Report, java_agreement, java_stack, require_tool, workspace,
};

/// Debian's virtual machine.
fn java() -> Result<&'static OsStr> {
    require_tool("java", "openjdk-17-jdk-headless")?;
    require_tool("javac", "openjdk-17-jdk-headless")?;
    Ok(OsStr::new("java"))
}

/// Checks that stacks agree, and that those of the whole program are whole.
fn check(agreement: &Agreement) -> Result<()> {
    let share = whole_share(&agreement.report);
    println!("{:.2} % of all are complete", 100.0 * share);
    // On a loaded machine, some frames are gone before they can be named. In the first run on a machine, the library's unwind table is
    // built meanwhile, and stacks of the start are incomplete.
    agreement.check(2_000, 0.95)?;
    ensure!(share >= 0.9, "too few stacks of the process are whole");
    Ok(())
}

/// The share of allocations whose stack is whole.
fn whole_share(report: &Report) -> f64 {
    let quality = &report.quality;
    let all = quality.stacks_complete + quality.stacks_truncated + quality.stacks_broken;
    quality.stacks_complete as f64 / all as f64
}

/// Check that methods, files and lines are those of the virtual machine's own stacks, while methods are compiled, inlined and
/// replaced: of calls, recursion, interfaces, lambdas, streams, exceptions, locks, reflection and threads.
#[test]
fn java_stacks_are_the_virtual_machines_own() -> Result<()> {
    check(&java_agreement(&[java()?], &["--exact"], 300)?)
}

/// Check the same where everything is interpreted.
#[test]
fn interpreted_java_stacks_are_the_virtual_machines_own() -> Result<()> {
    check(&java_agreement(
        &[java()?, OsStr::new("-Xint")],
        &["--exact"],
        100,
    )?)
}

/// Check the same for code of the first compiler alone, and of the second one alone.
#[test]
fn compiled_java_stacks_are_the_virtual_machines_own() -> Result<()> {
    for option in ["-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation"] {
        check(&java_agreement(
            &[java()?, OsStr::new(option)],
            &["--exact"],
            300,
        )?)?;
    }
    Ok(())
}

/// Check that stacks which come before the table of the virtual machine's library go on through generated code when it is there, with the
/// names of their methods, as in the first run on a machine.
#[test]
fn java_stacks_are_completed_late() -> Result<()> {
    let options = ["--exact", "--no-table-cache"];
    let report = java_agreement(&[java()?], &options, 100)?.report;
    report.check_nothing_lost()?;
    let quality = &report.quality;
    let noted = |reason: &str| quality.noted.get(reason).copied().unwrap_or_default();
    let late = noted("stacks_walked_late");
    let (ended, unnamed) = (noted("stack_broken_unmapped"), noted("java_frames_unnamed"));
    println!("{late} late, {ended} end in generated code, {unnamed} frames unnamed");
    ensure!(late > 0, "{quality:?}");
    // On a loaded machine, the table may come too late for many stacks, but that is another reason.
    ensure!(ended * 100 <= quality.samples, "{quality:?}");
    ensure!(unnamed * 10 <= quality.samples, "{quality:?}");
    Ok(())
}

/// Check that direct buffers belong to the method that makes them, exactly.
#[test]
fn direct_buffers_belong_to_their_method() -> Result<()> {
    let agreement = java_agreement(&[java()?], &["--exact"], 1)?;
    let mut sums = BTreeMap::<String, u64>::new();
    for site in &agreement.report.sites {
        let stack = java_stack(site);
        let is_large = site.totals.allocated_bytes >= 300_000 * site.totals.allocations;
        let of = stack.iter().find(|frame| frame.0.starts_with("Points."));
        if let (true, Some((method, _, _))) = (is_large, of) {
            *sums.entry(method.clone()).or_default() += site.totals.allocations;
        }
    }
    assert_eq!(sums.get("Points.buffers"), Some(&50), "{sums:?}");
    Ok(())
}

/// Check that nearly all stacks of a whole program are whole: of the Java compiler, which is a Java program.
#[test]
fn stacks_of_the_java_compiler_are_whole() -> Result<()> {
    java()?;
    let heaptrace = Heaptrace::tracing()?;
    let source = workspace().join("tests/fixtures/java/Points.java");
    let classes = heaptrace.path("classes");
    let options = ["javac", "-nowarn", "-XDignore.symbol.file", "-d"].map(OsStr::new);
    let command = [&options[..], &[classes.as_os_str(), source.as_os_str()]].concat();
    // The first run builds the unwind tables that are missing.
    heaptrace.record(&["--exact"], &command)?;
    let recording = heaptrace.record(&["--exact"], &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    let share = whole_share(&recording.report);
    println!("{:.2} % are whole", 100.0 * share);
    ensure!(share >= 0.95);
    Ok(())
}
