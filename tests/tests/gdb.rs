//! Tests of stacks against gdb's, frame by frame: the same functions and addresses at the same allocation.

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{
    Backtrace, Compiler, Frame, GdbFrame, Heaptrace, Report, Site, backtraces, c_optimized,
    cpp_optimized, require_tool,
};

/// The part of a function's name that both write alike: without parameters, namespaces, and the prefixes of the C
/// library's aliases.
fn plain(name: &str) -> &str {
    let name = name.trim_start_matches("(anonymous namespace)::");
    let name = name.split('(').next().unwrap_or(name);
    let name = name.rsplit("::").next().unwrap_or(name);
    name.trim_start_matches("__GI_").trim_start_matches('_')
}

/// Whether both describe the same frame.
fn same(ours: &Frame, theirs: &GdbFrame) -> Result<bool> {
    let name = ours.function.as_deref().filter(|name| !name.is_empty());
    // Only gdb has a name for the code to which a signal handler returns.
    let named = match (name, theirs.function.as_deref()) {
        (Some(ours), Some(theirs)) => plain(ours) == plain(theirs),
        (None, Some(theirs)) => theirs == "<signal handler called>" || theirs == "__restore_rt",
        (_, None) => true,
    };
    let (file, offset) = &theirs.place;
    let digits = ours.address.trim_start_matches("0x");
    let address = u64::from_str_radix(digits, 16)?;
    // Our address is inside of the call, or exactly at the instruction that a signal interrupted.
    let placed = address == *offset || address + 1 == *offset;
    Ok(named && placed && ours.module.as_deref() == Some(file.as_str()))
}

/// Fails unless the site's stack is gdb's. An incomplete stack must be the inner part of gdb's.
fn agrees(site: &Site, theirs: &Backtrace) -> Result<()> {
    if site.stack_end == "complete" {
        let (ours, theirs) = (site.stack.len(), theirs.len());
        ensure!(ours == theirs, "{ours} frames, of gdb's {theirs}");
    }
    for (number, (ours, theirs)) in site.stack.iter().zip(theirs).enumerate() {
        ensure!(
            same(ours, theirs)?,
            "frame {number}: ours {ours:?}, gdb's {theirs:?}"
        );
    }
    Ok(())
}

/// The sites with a single block, of a size that no other such site has.
fn sites_by_size(report: &Report) -> BTreeMap<u64, &Site> {
    let mut sites = BTreeMap::<u64, Vec<&Site>>::new();
    for site in &report.sites {
        let totals = &site.totals;
        if totals.allocations == 1 {
            sites.entry(totals.allocated_bytes).or_default().push(site);
        }
    }
    let single = sites.into_iter().filter(|(_, sites)| sites.len() == 1);
    single.map(|(size, sites)| (size, sites[0])).collect()
}

/// Compares the stacks of the allocations of these sizes that gdb sees in `malloc`. Returns their number.
fn compare(command: &[OsString], sizes: &[u64]) -> Result<usize> {
    let here = Heaptrace::tracing()?;
    let report = here.record_all(command)?.report;
    let sites = sites_by_size(&report);
    let stacks = backtraces(here.folder(), command, sizes)?;
    let mut frames = 0;
    for (size, stack) in &stacks {
        let site = sites
            .get(size)
            .with_context(|| format!("no site of {size} bytes"))?;
        agrees(site, stack).with_context(|| format!("{size} bytes"))?;
        frames += site.stack.len();
    }
    println!(
        "{:?}: {} stacks, {frames} frames as gdb has them",
        command[0],
        stacks.len()
    );
    Ok(stacks.len())
}

/// Check that gdb finds the same functions and addresses for every kind of frame, with each compiler at every level of
/// optimization.
#[test]
fn frames_are_those_of_gdb() -> Result<()> {
    let sizes: Vec<u64> = (1001..=1014).collect();
    for compiler in Compiler::all() {
        let fixture = c_optimized("frames", compiler, &[])?;
        let stacks = compare(&[fixture.path.into()], &sizes);
        let stacks = stacks.with_context(|| format!("{compiler:?}"))?;
        assert_eq!(stacks, sizes.len(), "{compiler:?}");
    }
    Ok(())
}

/// Check that gdb finds the same frames where an exception is created, during its unwinding, and where it is caught.
#[test]
fn frames_around_exceptions_are_those_of_gdb() -> Result<()> {
    for name in ["gcc", "clang"] {
        let level = "-O2";
        let compiler = Compiler { name, level };
        let fixture = cpp_optimized("throws", compiler)?;
        let stacks = compare(&[fixture.path.into()], &[2003, 2004, 2005, 3129]);
        let stacks = stacks.with_context(|| format!("{compiler:?}"))?;
        assert_eq!(stacks, 4, "{compiler:?}");
    }
    Ok(())
}

/// Check that gdb finds the same addresses in a distribution's stripped programs, which have almost no names, at up to
/// forty allocations of sizes that are requested once.
#[test]
fn frames_of_stripped_programs_are_those_of_gdb() -> Result<()> {
    let programs: [(&str, &[&str]); 2] = [
        ("jq", &["-n", "[range(300)|{a:., b:\"x\"}]|map(.a)|add"]),
        (
            "sqlite3",
            &[
                ":memory:",
                "create table t(a,b); select * from t order by b;",
            ],
        ),
    ];
    for (name, arguments) in programs {
        let mut command: Vec<OsString> = vec![require_tool(name, name)?.into()];
        command.extend(arguments.iter().map(OsString::from));
        let report = Heaptrace::tracing()?.record_all(&command)?.report;
        // gdb stops only at `malloc`. jq calls `calloc` for 40 bytes, and in some runs `malloc` for as many, which gdb
        // sees once: these are different allocations.
        let by_malloc = |site: &&&Site| {
            let caller = site.stack.first().and_then(|it| it.function.as_deref());
            let by_another =
                caller.is_some_and(|it| it.contains("calloc") || it.contains("realloc"));
            site.stack_end == "complete" && site.totals.allocated_bytes >= 40 && !by_another
        };
        let mut sizes: Vec<u64> = sites_by_size(&report)
            .values()
            .filter(by_malloc)
            .map(|site| site.totals.allocated_bytes)
            .collect();
        sizes.truncate(40);
        let stacks = compare(&command, &sizes).context(name)?;
        assert!(stacks >= 3, "{name}: {stacks} of {sizes:?}");
    }
    Ok(())
}
