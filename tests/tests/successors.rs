//! Tests of libraries that are loaded at the place of another one, unloaded before: addresses alone don't tell their
//! stacks apart.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use heaptrace_tests::{Heaptrace, Recording, Site, c, run};

/// The number of libraries.
const LIBRARIES: u64 = 3;

/// Calls of each library's function, as the fixture makes them.
const CALLS: u64 = 100;

/// All libraries have the same code at the same offsets, but frames of different sizes: each one's stacks need its own
/// unwind table.
const SOURCE: &str = "
    #include <stdlib.h>
    #include <sys/mman.h>
    void NAME(size_t size, size_t length) {
        volatile char space[SPACE];
        space[0] = 1;
        void *block = malloc(size);
        void *pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        space[SPACE - 1] = block != NULL && pages != MAP_FAILED;
    }";

fn library(path: &Path, number: u64) -> Result<()> {
    let source = path.with_extension("c");
    fs::write(&source, SOURCE)?;
    let mut command = Command::new("cc");
    command
        .args(["-O2", "-fomit-frame-pointer", "-fPIC", "-shared"])
        .arg(format!("-DNAME=from_{number}"))
        .arg(format!("-DSPACE={}", 1000 * number))
        .arg(&source)
        .arg("-o")
        .arg(path);
    run(&mut command)?.success()?;
    Ok(())
}

/// Records the fixture with libraries.
fn record(options: &[&str], arguments: &[&str]) -> Result<Recording> {
    let here = Heaptrace::tracing()?;
    let mut command: Vec<OsString> = vec![c("successors")?.as_ref().into()];
    command.extend(arguments.iter().map(OsString::from));
    for number in 1..=LIBRARIES {
        let path = here.path(&format!("plug_{number}.so"));
        library(&path, number)?;
        command.push(path.into());
    }
    let recording = here.record(options, &command)?;
    ensure!(recording.ended.code() == 0, "{}", recording.ended.stderr);
    recording.report.check_nothing_lost()?;
    Ok(recording)
}

/// Whether a stack goes from a function to `main`.
fn is_whole(site: &Site, function: &str) -> bool {
    let mut rest = site.stack.iter();
    site.stack_end == "complete" && rest.any(|it| it.is(function)) && rest.any(|it| it.is("main"))
}

/// Records the fixture, and compares the sites of each library with what its function allocated and mapped.
fn each_has_its_own(options: &[&str]) -> Result<()> {
    let recording = record(options, &[])?;
    let report = &recording.report;
    let maps = options.contains(&"--mmap");
    for number in 1..=LIBRARIES {
        let function = format!("from_{number}");
        for (kind, bytes) in [(None, 1000), (Some("mmap"), 4096)] {
            let sites = report.sites.iter();
            let sites: Vec<&Site> = sites
                .filter(|site| site.kind.as_deref() == kind && site.has(&function))
                .collect();
            let sum = |of: fn(&Site) -> u64| sites.iter().map(|site| of(site)).sum::<u64>();
            let calls = if kind.is_some() && !maps { 0 } else { CALLS };
            let found = (
                sum(|it| it.totals.allocations),
                sum(|it| it.totals.allocated_bytes),
            );
            ensure!(
                found == (calls, calls * number * bytes),
                "{function}, {kind:?}: {found:?}"
            );
            for site in sites {
                let frames: Vec<_> = site.stack.iter().map(|it| it.function.as_deref()).collect();
                ensure!(
                    is_whole(site, &function),
                    "{function}, {kind:?}: {} {frames:?}",
                    site.stack_end
                );
            }
        }
    }
    Ok(())
}

/// Check that each library has exactly its own blocks, with whole stacks.
#[test]
fn blocks_belong_to_the_library_at_their_time() -> Result<()> {
    each_has_its_own(&[])
}

/// Check that the same holds in a sample. Every block is much larger than the mean, so all are sampled.
#[test]
fn samples_belong_to_the_library_at_their_time() -> Result<()> {
    each_has_its_own(&["--sample", "16B"])
}

/// Check that the same holds for mapped memory.
#[test]
fn mapped_memory_belongs_to_the_library_at_its_time() -> Result<()> {
    each_has_its_own(&["--mmap"])
}

/// Check that a stack is whole if another thread changes mappings most of the time, except for a few that end because of that: none is
/// walked by the table of the library that was at the same addresses before. (A walk used cached mappings without asking
/// whether they were still there. And of others, it knew nothing while the kernel's lock was taken: most stacks ended early.)
#[test]
fn no_stack_is_walked_by_a_table_of_an_earlier_library() -> Result<()> {
    let recording = record(&[], &["--busy"])?;
    let report = &recording.report;
    let mut cut = 0;
    for number in 1..=LIBRARIES {
        let function = format!("from_{number}");
        let sites = || report.sites.iter().filter(|site| site.has(&function));
        let sum: u64 = sites().map(|site| site.totals.allocations).sum();
        ensure!(sum == CALLS, "{function}: {sum}");
        let broken = sites().filter(|site| !is_whole(site, &function));
        cut += broken.map(|site| site.totals.allocations).sum::<u64>();
    }
    let busy = report.quality.noted.get("stack_broken_mappings_busy");
    let stacks = CALLS * LIBRARIES;
    println!("{cut} of {stacks} stacks are cut");
    ensure!(
        cut <= busy.copied().unwrap_or(0) && cut * 100 <= stacks,
        "{:?}",
        report.quality
    );
    Ok(())
}
