//! The part of `cargo xtask runtimes` for Java: each virtual machine of this machine.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use heaptrace_tests::{Report, java_agreement, java_machines};

/// The least share of allocations whose Java stack must be the virtual machine's own, and of stacks that must be whole.
const LEAST_SHARE: f64 = 0.95;

/// What was found.
pub(super) struct Found {
    /// The section of the page.
    pub(super) page: String,
    pub(super) is_met: bool,
    pub(super) is_any: bool,
}

/// Compares stacks under each virtual machine whose path contains a text.
pub(super) fn compare(times: u32, only: Option<&str>) -> Result<Found> {
    let mut found = Found {
        page: HEAD.to_owned(),
        is_met: true,
        is_any: false,
    };
    for java in java_machines() {
        let name = java.display().to_string();
        if only.is_some_and(|only| !name.contains(only)) {
            continue;
        }
        found.is_any = true;
        let version = version(&java)?;
        for (code, option) in [
            ("all kinds", "-XX:+TieredCompilation"),
            ("interpreted", "-Xint"),
            ("of the first compiler", "-XX:TieredStopAtLevel=1"),
            ("of the second compiler", "-XX:-TieredCompilation"),
        ] {
            let command = [java.as_os_str(), OsStr::new(option)];
            let agreement = java_agreement(&command, &["--exact"], times)
                .with_context(|| format!("{name} {option}"))?;
            let percent = |part: u64, all: u64| part as f64 / all as f64 * 100.0;
            let quality = &agreement.report.quality;
            let [named, frames] = named_frames(&agreement.report);
            let row = format!(
                "| {version} | {code} | {} | {:.2} % | {:.2} % | {:.2} % | {:.2} % | {} |\n",
                agreement.allocations,
                percent(agreement.agreeing, agreement.allocations),
                percent(agreement.complete, agreement.allocations),
                percent(quality.stacks_complete, quality.samples),
                percent(named, frames),
                quality.lost.values().sum::<u64>(),
            );
            print!("{row}");
            for difference in agreement.differences.iter().take(3) {
                println!("  {difference}");
            }
            found.page.push_str(&row);
            found.is_met &= agreement.share() >= LEAST_SHARE
                && quality.stacks_complete as f64 >= LEAST_SHARE * quality.samples as f64;
        }
    }
    Ok(found)
}

/// The Java frames that have a name, and all of them.
fn named_frames(report: &Report) -> [u64; 2] {
    let frames = report.sites.iter().flat_map(|site| &site.stack);
    let frames = frames.filter(|frame| frame.language == "java");
    frames.fold([0, 0], |[named, all], frame| {
        [named + u64::from(frame.function.is_some()), all + 1]
    })
}

const HEAD: &str = "
## Java

A program allocates native memory (`Unsafe.allocateMemory`) from calls, recursion, interfaces, lambdas, streams, exceptions, locks, reflection and threads,
while its methods are compiled, inlined and replaced, and keeps for each allocation the stack that Java gives (`Throwable.getStackTrace`). Frames that Java
hides or replaces itself (of lambdas' classes and of reflection) are not compared. *Whole*: of these allocations; *of all*: of all allocations of the process,
with those of the virtual machine's start. *Named*: the Java frames that have a name. The task fails below 95 %.

| version | code | allocations | agree | whole | of all | named | lost |
|--|--|--:|--:|--:|--:|--:|--:|
";

/// The version that a virtual machine names.
fn version(java: &Path) -> Result<String> {
    let output = Command::new(java).arg("-version").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let version = text.split('"').nth(1).unwrap_or("unknown");
    Ok(version.to_owned())
}
