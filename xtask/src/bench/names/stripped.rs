//! Counts the frames of a distribution's stripped programs that have names, without and with its debug packages.
//!
//! Part of bench. Packages of a program and of its debug files have the same version, so both are unpacked into a folder, and none is installed. The
//! system's own debug files are hidden. It must not know where heaptrace looks for names.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};

use super::counted::{Counted, share};
use crate::{apt, process, workspace};

/// A program of a distribution.
struct Program {
    name: &'static str,
    /// The packages that have it and its libraries; none if it is taken as it is installed.
    packages: &'static [&'static str],
    /// The packages with debug files.
    debug: &'static [&'static str],
    /// Its path in the packages, or in the system.
    path: &'static str,
    arguments: &'static [&'static str],
}

const PROGRAMS: [Program; 4] = [
    Program {
        name: "perl",
        packages: &["perl-base"],
        debug: &["perl-debug", "libc6-dbg"],
        path: "usr/bin/perl",
        arguments: &[
            "-e",
            "my %h; for (1..5000) { $h{$_} = [split /1/, sprintf('%x-%s', $_, 'a' x ($_ % 50))] } print join('', sort keys %h) =~ /12(3+)/ ? 1 : 0",
        ],
    },
    Program {
        name: "python3.11",
        packages: &[
            "python3.11-minimal",
            "libpython3.11-minimal",
            "libpython3.11-stdlib",
        ],
        debug: &["python3.11-dbg", "libc6-dbg"],
        path: "usr/bin/python3.11",
        arguments: &[
            "-S",
            "-c",
            "import json, re, collections, ast; x = json.loads(json.dumps({str(i): list(range(i % 20)) for i in range(2000)})); \
             ast.parse('f(x)[1:2] + 3\\n' * 300); re.findall('(a+)b', 'aab' * 1000)",
        ],
    },
    Program {
        name: "objdump",
        packages: &[
            "binutils-x86-64-linux-gnu",
            "libbinutils",
            "libctf0",
            "libctf-nobfd0",
        ],
        debug: &["libbinutils-dbg", "libctf0-dbg", "libc6-dbg"],
        path: "usr/bin/x86_64-linux-gnu-objdump",
        arguments: &[
            "--dynamic-syms",
            "--private-headers",
            "--disassemble",
            "/bin/ls",
        ],
    },
    Program {
        name: "sort",
        packages: &[],
        debug: &["libc6-dbg"],
        path: "bin/sort",
        arguments: &["/etc/services", "/etc/protocols", "/etc/passwd"],
    },
];

/// Hides the system's debug files, and runs the rest of its arguments.
const HIDDEN: &str =
    "if [ -d /usr/lib/debug ]; then mount -t tmpfs hidden /usr/lib/debug || exit; fi; exec \"$@\"";

/// The counts of one program.
struct Row {
    program: &'static Program,
    without: Counted,
    with: Counted,
}

/// Measures all programs; returns the part of the page.
pub(super) fn measure_all() -> Result<String> {
    let folder = workspace::target_dir().join("xtask/stripped");
    let mut rows = Vec::new();
    for program in &PROGRAMS {
        let row = measure(program, &folder.join(program.name))
            .with_context(|| format!("cannot count the names of {}", program.name))?;
        println!(
            "    {}: {} and {} of {} addresses have names",
            program.name, row.without.named, row.with.named, row.with.addresses
        );
        rows.push(row);
    }
    page(&rows)
}

fn measure(program: &'static Program, folder: &Path) -> Result<Row> {
    let (own, debug) = (folder.join("own"), folder.join("debug"));
    apt::unpack(program.packages, &own)?;
    apt::unpack(program.debug, &debug)?;
    let root = match program.packages {
        [] => Path::new("/"),
        _ => &own,
    };
    let libraries: Vec<PathBuf> = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]
        .map(|it| root.join(it))
        .into();
    let mut path = OsString::from("LD_LIBRARY_PATH=");
    path.push(std::env::join_paths(libraries)?);
    let mut home = OsString::from("PYTHONHOME=");
    home.push(root.join("usr"));

    let (plain, named) = (folder.join("plain.data"), folder.join("named.data"));
    let mut words: Vec<OsString> = ["record", "--exact", "-o"].map(OsString::from).into();
    words.extend([plain.clone().into(), "--".into(), "env".into(), path, home]);
    words.push(root.join(program.path).into());
    words.extend(program.arguments.iter().map(OsString::from));
    heaptrace(&words)?;
    let folder = debug.join("usr/lib/debug");
    heaptrace(&[
        "symbolize".into(),
        "--force".into(),
        "--debug-dir".into(),
        folder.into(),
        "-o".into(),
        named.clone().into(),
        plain.clone().into(),
    ])?;
    Ok(Row {
        program,
        without: counted(&plain)?,
        with: counted(&named)?,
    })
}

/// Runs heaptrace where the system's debug files are hidden; returns what it printed.
fn heaptrace(words: &[OsString]) -> Result<String> {
    let mut command = process::as_root("unshare", &[])?;
    command.args(["--mount", "sh", "-c", HIDDEN, "sh"]);
    command.arg(workspace::heaptrace_binary()).args(words);
    process::output_with(&mut command, Stdio::null())
}

fn counted(recording: &Path) -> Result<Counted> {
    let words = ["report", "--format", "json"].map(OsString::from);
    Counted::of(&heaptrace(&[&words[..], &[recording.into()]].concat())?)
}

fn page(rows: &[Row]) -> Result<String> {
    let mut page = String::from(
        "\n## Frames of Debian's stripped programs\n\n\
         Each program runs once, exactly recorded: first without any debug files, and then `heaptrace symbolize --debug-dir` adds names from Debian's debug \
         packages to the same recording. *Addresses* are distinct return addresses in stacks. *Frames* are those of the stacks of all allocations, inlined \
         functions left out. Debian has such packages for few programs; sort stands for those that have none of their own. `cargo xtask bench --only names stripped` prints this part alone.\n\n\
         | | debug packages | addresses | named without | with | source line without | with | inlined functions without | with | frames named without | with |\n\
         |--|--|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for Row {
        program,
        without,
        with,
    } in rows
    {
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            program.name,
            program.debug.join(", "),
            with.addresses,
            share(without.named, without.addresses),
            share(with.named, with.addresses),
            share(without.with_line, without.addresses),
            share(with.with_line, with.addresses),
            without.inlined,
            with.inlined,
            share(without.named_frames, without.frames),
            share(with.named_frames, with.frames),
        )?;
    }
    Ok(page)
}
