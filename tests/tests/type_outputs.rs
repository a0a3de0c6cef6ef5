//! Tests of the types in every output, from one recording whose types and numbers are known.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use heaptrace_tests::{Heaptrace, require_tool, run};
use serde_json::Value;

/// Ten vectors, a list of five nodes and six blocks of no type; with an argument, one more of each. They are left, with all that the program allocates.
const PROGRAM: &str = r#"
#include <cstdlib>
#include <list>
#include <unistd.h>
#include <vector>
namespace app { struct Order { long id; double price; char text[16]; }; }
void* volatile kept;
__attribute__((noinline)) void orders(int n) { for (int i = 0; i < n; i++) { auto& all = *new std::vector<app::Order>; all.reserve(8); kept = &all; } }
__attribute__((noinline)) void queue(int n) { auto& all = *new std::list<app::Order>; for (int i = 0; i < n; i++) all.push_back({}); kept = &all; }
__attribute__((noinline)) void unknown(int n) { for (int i = 0; i < n; i++) kept = malloc(100); }
int main(int argc, char**) { orders(argc + 9); queue(argc + 4); unknown(argc + 5); _exit(0); }
"#;

/// What the vectors have: storage of 8 elements of 32 bytes each, and objects of 24 bytes.
const VECTORS: u64 = 10 * (8 * 32 + 24);

/// What the nodes of the list have, with two pointers each.
const NODES: u64 = 5 * (16 + 32);

/// The program, built once in a folder.
fn built(here: &Heaptrace) -> Result<PathBuf> {
    let source = here.path("orders.cc");
    let program = here.path("orders");
    if program.exists() {
        return Ok(program);
    }
    fs::write(&source, PROGRAM)?;
    let mut command = Command::new("g++");
    command
        .args(["-O2", "-g", "-w", "-o"])
        .arg(&program)
        .arg(&source);
    run(&mut command)?.success()?;
    Ok(program)
}

fn recorded(here: &Heaptrace, file: &str, arguments: &[&str]) -> Result<()> {
    let program = built(here)?;
    let mut command = vec!["record", "--exact", "-o", file, "--"];
    command.push(program.to_str().context("an odd path")?);
    command.extend(arguments);
    here.run(&command)?.success()?;
    Ok(())
}

fn json(here: &Heaptrace, arguments: &[&str]) -> Result<Value> {
    let output = here.run(arguments)?.success()?.stdout;
    serde_json::from_str(&output).with_context(|| output.clone())
}

/// A number of each member of a list, by name.
fn by_name(list: &Value, number: &str) -> BTreeMap<String, u64> {
    let all = list.as_array().into_iter().flatten();
    let named = all.filter_map(|it| {
        let value = it.pointer(number)?.as_u64()?;
        Some((it["name"].as_str()?.to_owned(), value))
    });
    named.collect()
}

/// Check that every output has the same bytes for each type: the list of types, reports by type and by element, the flame graph, pprof, the timeline, a difference of
/// two runs, and a filter.
#[test]
fn outputs_have_types() -> Result<()> {
    let here = Heaptrace::tracing()?;
    recorded(&here, "one.data", &[])?;
    recorded(&here, "two.data", &["more"])?;
    let of_report = "/totals/allocated_bytes";
    let types = json(&here, &["types", "--format", "json", "one.data"])?;
    let report = json(
        &here,
        &["report", "--by", "type", "--format", "json", "one.data"],
    )?;
    let timeline = json(
        &here,
        &[
            "timeline",
            "--by",
            "type",
            "--metric",
            "total-bytes",
            "--format",
            "json",
            "one.data",
        ],
    )?;
    let diff = json(
        &here,
        &[
            "diff",
            "--by",
            "type",
            "--metric",
            "total-bytes",
            "--format",
            "json",
            "one.data",
            "two.data",
        ],
    )?;
    for (output, found) in [
        ("types", by_name(&types["types"], of_report)),
        ("report", by_name(&report["groups"], of_report)),
        ("timeline", by_name(&timeline["groups"], "/values/1")),
        ("diff", by_name(&diff["rows"], "/old")),
    ] {
        let has = |name: &str| found.get(name).copied().unwrap_or(0);
        ensure!(
            has("std::vector<app::Order>") == VECTORS
                && has("std::list<app::Order> (nodes)") == NODES
                && has("std::list<app::Order>") == 24
                && has("(unknown)") >= 600,
            "{output}: {found:?}"
        );
    }
    let newer = by_name(&diff["rows"], "/new");
    ensure!(
        newer.get("std::vector<app::Order>") == Some(&(VECTORS / 10 * 11)),
        "{newer:?}"
    );
    let elements = json(
        &here,
        &["report", "--by", "element", "--format", "json", "one.data"],
    )?;
    let elements = by_name(&elements["groups"], of_report);
    ensure!(
        elements.get("app::Order") == Some(&(10 * 8 * 32 + NODES))
            && elements.get("std::vector<app::Order>") == Some(&240),
        "{elements:?}"
    );
    let filtered = json(
        &here,
        &[
            "report",
            "--filter",
            "type=std::vector<*",
            "--format",
            "json",
            "one.data",
        ],
    )?;
    ensure!(
        filtered["totals"]["allocated_bytes"] == VECTORS,
        "{}",
        filtered["totals"]
    );
    here.run(&["flamegraph", "--types", "-o", "types.svg", "one.data"])?
        .success()?;
    let svg = fs::read_to_string(here.path("types.svg"))?;
    ensure!(
        svg.contains("<title>[std::vector&lt;app::Order&gt;]: 2.5 KiB"),
        "no frame of the type"
    );
    here.run(&["pprof", "-o", "types.pb.gz", "one.data"])?
        .success()?;
    let mut go = Command::new(require_tool("go", "golang-go")?);
    go.args(["tool", "pprof", "-symbolize=none", "-raw"])
        .arg(here.path("types.pb.gz"))
        .current_dir(here.folder())
        .env("HOME", here.folder())
        .env("GOTOOLCHAIN", "local");
    let raw = run(&mut go)?.success()?.stdout;
    ensure!(
        raw.contains("element:[app::Order] ") && raw.contains("type:[std::vector<app::Order>]"),
        "{raw}"
    );
    Ok(())
}
