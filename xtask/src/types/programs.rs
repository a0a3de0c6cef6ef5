//! Records real programs, and says which share of the bytes that they allocate has a type, and what they allocate most of.
//!
//! Part of types. It must not know how a type is found.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::sources::{self, Prepared};
use crate::{process, run, workspace};

/// How many types are shown of each program.
const TOP: usize = 10;

/// The longest name of a type that is shown whole.
const LONGEST: usize = 90;

/// A program to record.
struct Program {
    name: &'static str,
    /// What it is, and which debug information it has.
    about: &'static str,
    /// What it does.
    work: &'static str,
    prepare: fn(&Path) -> Result<Prepared>,
}

const PROGRAMS: [Program; 6] = [
    Program {
        name: "sqlite3",
        about: "C, as the crate rusqlite bundles it, `-O3 -g`, which keeps the size of each block before it",
        work: "a table of 100,000 rows in memory, an index, and a sum by group",
        prepare: sources::sqlite,
    },
    Program {
        name: "sqlite3 (distribution)",
        about: "the same, built for `malloc_usable_size`, as distributions do",
        work: "the same",
        prepare: sources::sqlite_of_distributions,
    },
    Program {
        name: "redis-server",
        about: "C, from Debian's source, `-O2 -g`, with the C library's allocator",
        work: "60,000 requests of redis-benchmark (SET, GET, LPUSH)",
        prepare: sources::redis,
    },
    Program {
        name: "CPython",
        about: "Debian's python3.11 with python3.11-dbg, `PYTHONMALLOC=malloc`",
        work: "20 JSON round trips",
        prepare: sources::cpython,
    },
    Program {
        name: "ripgrep",
        about: "Rust, 15.2.0, a release build, `line-tables-only`",
        work: "searches heaptrace's source, with results in JSON",
        prepare: sources::ripgrep,
    },
    Program {
        name: "heaptrace",
        about: "Rust and C (zstd), the release build, `line-tables-only`",
        work: "`report --format json` of the recording of CPython",
        prepare: |folder| {
            let words: [OsString; 5] = [
                "sh".into(),
                "-c".into(),
                "exec \"$0\" report --format json \"$1\" > /dev/null".into(),
                workspace::heaptrace_binary().into(),
                recording(folder, "CPython").into(),
            ];
            Ok(Prepared {
                command: words.into(),
                ..Prepared::default()
            })
        },
    },
];

/// What was found for a program.
struct Found {
    program: &'static Program,
    /// All bytes that it allocated.
    bytes: u64,
    /// Bytes with a type, by way, most first.
    ways: Vec<(String, u64)>,
    /// The types with most bytes: the name, the ways, and the bytes.
    top: Vec<(String, String, u64)>,
}

/// Records all programs; returns the section's text.
pub(super) fn measure() -> Result<String> {
    let folder = workspace::target_dir().join("xtask/types-programs");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut all = Vec::new();
    for program in &PROGRAMS {
        println!("{}: {}", program.name, program.work);
        let found =
            record(program, &folder).with_context(|| format!("cannot record {}", program.name))?;
        print!("{}", top_of(&found));
        all.push(found);
    }
    Ok(page(&all))
}

/// The recording of a program.
fn recording(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.data"))
}

fn record(program: &'static Program, folder: &Path) -> Result<Found> {
    let prepared = (program.prepare)(folder)?;
    let data = recording(folder, program.name);
    let mut words: Vec<OsString> = ["record", "--exact", "-o"].map(OsString::from).into();
    words.extend([data.clone().into(), "--".into()]);
    if prepared.starts_tracer {
        let mut tracer = workspace::heaptrace_binary().into_os_string();
        for word in &words {
            tracer.push(" ");
            tracer.push(word);
        }
        let mut variables = prepared.variables;
        variables.push(("TRACER", tracer));
        let (first, rest) = prepared.command.split_first().context("no command")?;
        process::run(process::as_root(first, &variables)?.args(rest))?;
    } else {
        words.extend(prepared.command);
        let mut command = process::as_root(workspace::heaptrace_binary(), &prepared.variables)?;
        process::output(command.args(&words))?;
    }
    if let Some(debug) = prepared.debug {
        let mut words: Vec<OsString> = ["symbolize", "--force", "--debug-dir"]
            .map(OsString::from)
            .into();
        words.extend([debug.into(), data.clone().into()]);
        process::run(&mut run::heaptrace(&words)?)?;
    }
    let mut command = Command::new(workspace::heaptrace_binary());
    command.args(["types", "--format", "json", "--metric", "total-bytes"]);
    command.args(["--top", &TOP.to_string()]);
    read(program, &process::output(command.arg(data))?)
}

fn read(program: &'static Program, json: &str) -> Result<Found> {
    let report: Value = serde_json::from_str(json).context("the types are not JSON")?;
    let found = report["found"].as_object().context("no shares of ways")?;
    let number = |it: &Value| it.as_u64().unwrap_or_default();
    let mut ways = Vec::new();
    let mut bytes = 0;
    for (way, value) in found {
        // Mapped memory is no block.
        if way == "mapped" {
            continue;
        }
        bytes += number(value);
        if way != "unknown" && number(value) > 0 {
            ways.push((way.clone(), number(value)));
        }
    }
    ways.sort_by_key(|it| std::cmp::Reverse(it.1));
    let types = report["types"].as_array().context("no types")?;
    let known = types.iter().filter(|it| it["is_known"] == true);
    let top = known.map(|it| {
        let ways = it["ways"].as_array().into_iter().flatten();
        let ways: Vec<&str> = ways.filter_map(Value::as_str).collect();
        let name = it["name"].as_str().unwrap_or_default();
        (
            name.to_owned(),
            ways.join(", "),
            number(&it["totals"]["allocated_bytes"]),
        )
    });
    Ok(Found {
        program,
        bytes,
        ways,
        top: top.collect(),
    })
}

fn page(all: &[Found]) -> String {
    let mut page = String::from(
        "Each program runs once, exactly recorded. The share is that of all bytes that it allocated.\n\n\
         | Program | | MB | with a type | by way |\n|--|--|--:|--:|--|\n",
    );
    for found in all {
        let known = found.ways.iter().map(|it| it.1).sum();
        let ways: Vec<String> = found
            .ways
            .iter()
            .map(|(way, bytes)| format!("{way} {}", share(*bytes, found.bytes)))
            .collect();
        let _ = writeln!(
            page,
            "| {} | {}; {} | {:.1} | {} | {} |",
            found.program.name,
            found.program.about,
            found.program.work,
            found.bytes as f64 / 1e6,
            share(known, found.bytes),
            ways.join(", ")
        );
    }
    page.push_str("\nThe types with most bytes:\n");
    for found in all {
        let _ = write!(page, "\n**{}**\n\n{}", found.program.name, top_of(found));
    }
    page
}

fn top_of(found: &Found) -> String {
    let mut table = String::from("| Type | way | share |\n|--|--|--:|\n");
    for (name, ways, bytes) in &found.top {
        let shown = match name.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
            None => name.clone(),
        };
        let share = share(*bytes, found.bytes);
        let _ = writeln!(
            table,
            "| `{}` | {ways} | {share} |",
            shown.replace('|', "\\|")
        );
    }
    table
}

fn share(part: u64, of: u64) -> String {
    let share = 100.0 * part as f64 / of.max(1) as f64;
    match part {
        0 => "0 %".to_owned(),
        _ if share < 1.0 => format!("{share:.1} %"),
        _ => format!("{share:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that mapped memory does not count, that ways are in order, and that what has no type is not among the types.
    #[test]
    fn shares_are_of_blocks() {
        let json = r#"{"found": {"frames": 10, "dataflow": 30, "symbol": 0, "unknown": 60, "mapped": 900}, "types": [
            {"name": "(unknown)", "is_known": false, "ways": [], "totals": {"allocated_bytes": 60}},
            {"name": "Order|2", "is_known": true, "ways": ["dataflow"], "totals": {"allocated_bytes": 30}}]}"#;
        let found = read(&PROGRAMS[0], json).unwrap();
        assert_eq!(found.bytes, 100);
        let ways: Vec<&str> = found.ways.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(ways, ["dataflow", "frames"]);
        let page = page(&[found]);
        assert!(
            page.contains("| 0.0 | 40 % | dataflow 30 %, frames 10 % |"),
            "{page}"
        );
        assert!(page.contains("| `Order\\|2` | dataflow | 30 % |"), "{page}");
    }
}
