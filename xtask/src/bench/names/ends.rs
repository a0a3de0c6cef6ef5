//! Measures how long a run lasts beyond the end of what it traced: names are looked up, and the data file is completed.
//!
//! Part of bench. It must not know what heaptrace does in that time.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::counted::Counted;
use super::stripped;
use crate::bench::cell::cell;
use crate::bench::stats::Spread;
use crate::{apt, process, workspace};

/// A large program.
struct Program {
    name: &'static str,
    arguments: &'static [&'static str],
}

const PROGRAMS: [Program; 2] = [
    Program {
        name: "node",
        arguments: &[
            "-e",
            "for (const m of require('module').builtinModules) { try { require(m) } catch {} } \
             const kept = []; for (let i = 0; i < 20000; i++) kept.push(Buffer.alloc(100 + i % 5000), JSON.parse(`{\"a\":[${i}]}`));",
        ],
    },
    Program {
        name: "chromium",
        arguments: &[
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            "about:blank",
        ],
    },
];

/// Runs a command, and then writes the time into a file.
const TIMED: &str = "end=$1; shift; \"$@\"; date +%s%N > \"$end\"";

/// Measures the programs that are there; returns the part of the page.
pub(super) fn measure_all(rounds: u32) -> Result<String> {
    apt::ensure(&["nodejs"], "for a large program")?;
    let folder = workspace::target_dir().join("xtask/ends");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut page = String::from(
        "\n## From the end of a program to the prompt\n\n\
         The time from the end of what `heaptrace record` traced until heaptrace itself ends: it reads what is left in the ring, removes probes, looks up all names, and \
         completes the data file. *Addresses* are distinct return addresses in stacks. Several readers without rights look them up where there are many.\n\n\
         | | addresses | named | seconds |\n|--|--:|--:|--:|\n",
    );
    for program in &PROGRAMS {
        if process::find_program(program.name).is_none() {
            writeln!(page, "| {} | is not installed here | | |", program.name)?;
            continue;
        }
        let mut seconds = Vec::new();
        let mut counted = Counted::default();
        for round in 1..=rounds {
            let recording = folder.join("recording.data");
            let taken = end(program, &folder, &recording)?;
            println!(
                "    {}, round {round} of {rounds}: {taken:.2} s",
                program.name
            );
            seconds.push(taken);
            counted = stripped::counted(&recording)?;
        }
        writeln!(
            page,
            "| {} | {} | {} | {} |",
            program.name,
            counted.addresses,
            counted.named,
            cell(Spread::of(&seconds), 2)
        )?;
    }
    Ok(page)
}

/// The seconds from a program's end to that of heaptrace.
fn end(program: &Program, folder: &Path, recording: &Path) -> Result<f64> {
    let end = folder.join("end");
    let mut command: Command = process::as_root(workspace::heaptrace_binary(), &[])?;
    command.args(["record", "--exact", "-o"]).arg(recording);
    command.args(["--", "sh", "-c", TIMED, "sh"]).arg(&end);
    command.arg(program.name);
    if program.name == "chromium" {
        let mut profile = std::ffi::OsString::from("--user-data-dir=");
        profile.push(folder.join("profile"));
        command.arg(profile);
    }
    command.args(program.arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = process::status(command.stderr(Stdio::null()))?;
    let ended = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    if !status.success() {
        bail!("`{}` failed: {status}", process::describe(&command));
    }
    let text = fs::read_to_string(&end).with_context(|| format!("no {}", end.display()))?;
    fs::remove_file(&end)?;
    let over: u128 = text.trim().parse().context("no time")?;
    Ok(ended.saturating_sub(over) as f64 / 1e9)
}
