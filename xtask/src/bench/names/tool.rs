//! Programs that find names for addresses: how each is asked, and how its answer is read.
//!
//! Part of bench.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::addresses::Address;
use crate::{cargo, process, workspace};

/// The version of blazecli, which is that of blazesym's authors.
const BLAZECLI: &str = "0.1.14";

/// What a program says of an address.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// The functions, innermost first.
    pub(super) functions: Vec<String>,
    /// The name of the file, and the line, of the innermost function.
    pub(super) line: Option<String>,
}

/// A program.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// It is asked for each such address: 1 for all of them.
    pub(super) every: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Heaptrace,
    LlvmSymbolizer,
    Addr2line,
    Blazecli,
}

/// All programs, heaptrace first.
pub(super) const ALL: [&Tool; 4] = [
    &Tool {
        name: "heaptrace",
        every: 1,
        kind: Kind::Heaptrace,
    },
    &Tool {
        name: "llvm-symbolizer",
        every: 1,
        kind: Kind::LlvmSymbolizer,
    },
    &Tool {
        name: "addr2line, every 20th address",
        // It takes many minutes for all.
        every: 20,
        kind: Kind::Addr2line,
    },
    &Tool {
        name: "blazecli",
        every: 1,
        kind: Kind::Blazecli,
    },
];

impl Tool {
    pub(super) fn is_ours(&self) -> bool {
        self.kind == Kind::Heaptrace
    }

    /// The command that asks for all addresses at once, or for some, and the addresses as it wants them.
    pub(super) fn question(
        &self,
        blazecli: Option<&Path>,
        path: &Path,
        addresses: &[Address],
    ) -> Result<(Vec<OsString>, String)> {
        let hexadecimal = |it: &Address| match self.kind {
            Kind::Heaptrace => format!("{:#x}", it.offset),
            _ => format!("{:#x}", it.linked),
        };
        let asked = addresses.iter().step_by(self.every);
        let asked: Vec<String> = asked.map(hexadecimal).collect();
        let mut words: Vec<OsString> = match self.kind {
            Kind::Heaptrace => vec![workspace::heaptrace_binary().into(), "names".into()],
            Kind::LlvmSymbolizer => vec!["llvm-symbolizer".into(), "--inlines".into(), "-e".into()],
            Kind::Addr2line => vec!["addr2line".into(), "-afiCe".into()],
            Kind::Blazecli => {
                let program = blazecli.context("it could not be built")?;
                let words = ["symbolize", "elf", "--path"].map(OsString::from);
                [vec![program.into()], words.into()].concat()
            }
        };
        words.push(path.into());
        if self.kind == Kind::Blazecli {
            words.extend(asked.iter().map(OsString::from));
        }
        Ok((words, asked.join("\n") + "\n"))
    }

    /// What the program says of each address.
    pub(super) fn found(&self, words: &[OsString], question: &Path) -> Result<Vec<Answer>> {
        let (program, rest) = words.split_first().context("no program")?;
        let mut command = Command::new(program);
        let output = process::output_with(command.args(rest), File::open(question)?);
        Ok(self.read(&output?))
    }

    fn read(&self, text: &str) -> Vec<Answer> {
        match self.kind {
            Kind::Heaptrace => blocks(text)
                .map(|block| answer(block.iter().filter_map(|line| line.split_once('\t'))))
                .collect(),
            Kind::LlvmSymbolizer => blocks(text)
                .map(|block| {
                    let (pairs, _) = block.as_chunks();
                    answer(pairs.iter().map(|[function, place]| {
                        let place = place.rsplit_once(':').map_or(*place, |it| it.0);
                        (*function, place)
                    }))
                })
                .collect(),
            Kind::Addr2line => {
                let lines: Vec<&str> = text.lines().collect();
                let of_address = lines.chunk_by(|_, next| !next.starts_with("0x"));
                let of_address = of_address.map(|lines| {
                    let (pairs, _) = lines.get(1..).unwrap_or_default().as_chunks();
                    answer(pairs.iter().map(|[function, place]| {
                        let place = place.split(" (discriminator").next();
                        (*function, place.unwrap_or_default())
                    }))
                });
                of_address.collect()
            }
            Kind::Blazecli => {
                let lines: Vec<&str> = text.lines().collect();
                let of_address = lines.chunk_by(|_, next| !next.starts_with("0x"));
                of_address.map(of_blazecli).collect()
            }
        }
    }
}

/// The answers to an address: lines up to an empty one.
fn blocks(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let ended = text.split_inclusive('\n').map(str::trim_end);
    let mut block = Vec::new();
    ended.filter_map(move |line| {
        if line.is_empty() {
            return Some(std::mem::take(&mut block));
        }
        block.push(line);
        None
    })
}

/// The answer of functions with their places, innermost first.
fn answer<'a>(frames: impl Iterator<Item = (&'a str, &'a str)>) -> Answer {
    let mut answer = Answer::default();
    for (function, place) in frames.filter(|(function, _)| *function != "??") {
        if answer.functions.is_empty() {
            answer.line = line(place);
        }
        answer.functions.push(function.to_owned());
    }
    answer
}

/// The name of a file and the line, without folders, which programs write differently.
fn line(place: &str) -> Option<String> {
    let place = place.rsplit_once('/').map_or(place, |it| it.1);
    let (file, line) = place.rsplit_once(':')?;
    let is_known = !file.is_empty() && file != "??" && line.parse().is_ok_and(|it: u32| it > 0);
    is_known.then(|| place.to_owned())
}

/// The lines of blazecli for an address: `0x12: f @ 0x10+0x2 a.c:7`, and then inlined functions, outermost first: `g @ b.c:8 [inlined]`.
fn of_blazecli(lines: &[&str]) -> Answer {
    // A column can follow the line.
    let place = |text: &str| {
        let mut parts = text.splitn(3, ':');
        match (parts.next(), parts.next()) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            _ => String::new(),
        }
    };
    let mut frames = Vec::new();
    for (index, text) in lines.iter().enumerate() {
        let frame = if index == 0 {
            let named = text.split_once(": ").map_or("", |it| it.1);
            named.rsplit_once(" @ 0x").map(|(function, at)| {
                let file = at.split_once(' ').map_or("", |it| it.1);
                (function.trim(), place(file))
            })
        } else {
            let inlined = text.trim().trim_end_matches("[inlined]");
            let (function, file) = inlined.rsplit_once(" @ ").unwrap_or((inlined, ""));
            Some((function.trim(), place(file.trim())))
        };
        frames.extend(frame);
    }
    frames.reverse();
    answer(
        frames
            .iter()
            .map(|(function, place)| (*function, place.as_str())),
    )
}

/// The path of blazecli, which is built once; `None` if it can't be had.
pub(super) fn blazecli() -> Option<PathBuf> {
    let folder = workspace::target_dir().join(format!("tools/blazecli-{BLAZECLI}"));
    let program = folder.join("bin/blazecli");
    if process::is_executable(&program) {
        return Some(program);
    }
    println!("Building blazecli {BLAZECLI} into {}", folder.display());
    let mut command = cargo::host("install");
    command
        .args(["blazecli", "--version", BLAZECLI, "--locked", "--root"])
        .arg(&folder)
        // Not in the repository, whose settings are for its own crates.
        .current_dir("/");
    match process::run(&mut command) {
        Ok(()) => Some(program),
        Err(error) => {
            println!("blazecli could not be built: {error:#}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(index: usize, text: &str) -> Vec<(Vec<String>, Option<String>)> {
        let answers = ALL[index].read(text).into_iter();
        answers.map(|it| (it.functions, it.line)).collect()
    }

    /// Check that the answers of all programs are read alike: a function with an inlined one, one without a line, and one that is not known.
    #[test]
    fn answers_are_read_alike() {
        let expected = [
            (
                vec!["inner(int)".to_owned(), "outer".to_owned()],
                Some("a.c:7".to_owned()),
            ),
            (vec!["f".to_owned()], None),
            (vec![], None),
        ];
        for (index, text) in [
            "inner(int)\t/src/a.c:7\nouter\t/src/a.c:9\n\nf\t??:0\n\n??\t??:0\n\n",
            "inner(int)\n/src/a.c:7:3\nouter\n/src/a.c:9:1\n\nf\n??:0:0\n\n??\n??:0:0\n\n",
            "0x0000000000000012\ninner(int)\n/src/a.c:7 (discriminator 2)\nouter\n/src/a.c:9\n0x13\nf\n??:?\n0x14\n??\n??:0\n",
            "0x00000000000012: outer @ 0x10+0x2 /src/a.c:9:1\n                  inner(int) @ /src/a.c:7:3 [inlined]\n\
             0x00000000000013: f @ 0x13+0x0\n0x00000000000014: <no-symbol>\n",
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(read(index, text), expected, "{}", ALL[index].name);
        }
    }
}
