//! Tests of stacks against gdb's, frame by frame: the same functions and addresses at the same allocation.

use std::ffi::OsString;

use anyhow::{Context as _, Result};
use heaptrace_tests::{
    Compiler, Heaptrace, Site, backtraces, c_optimized, cpp_optimized, require_tool,
};

/// Compares the stacks of the allocations of these sizes that gdb sees in `malloc`. Returns their number.
fn compare(command: &[OsString], sizes: &[u64]) -> Result<usize> {
    let here = Heaptrace::tracing()?;
    let report = here.record_all(command)?.report;
    let stacks = backtraces(here.folder(), command, sizes)?;
    let frames = report.has_stacks_of_gdb(&stacks)?;
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
        let mut sizes: Vec<u64> = report
            .sites_by_size()
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
