//! The options of `heaptrace who`.
//!
//! Part of the command line. Must not know how an answer is found.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::choices::format;
use super::input_args::{Naming, Wrapping};
use super::invocation::{Action, Filters, Format, Input, Question, Ranking, Source};
use super::moment::{self, Moment};
use super::question::{Asked, divide};
use super::values;
use crate::output::ShownLanguages;

#[derive(Debug, Args)]
pub(super) struct Who {
    /// Addresses, as 0x55d0c8a2b2d0 or decimal, or with --core names of registers as rdi; and the data file to read [default:
    /// heaptrace.data]
    #[arg(value_name = "ADDR|FILE")]
    words: Vec<String>,
    /// The process that the addresses are of.
    ///
    /// With FILE, a process in the file. Without FILE, this running process is traced from now on, until a block was allocated at each
    /// address, until --duration is over, or until Ctrl-C. What was there before is not known then: to know it, trace the process from
    /// its start with `heaptrace record --blocks`, and name its file.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: Option<u32>,
    /// A core file of a process in FILE.
    ///
    /// Without ADDR, the owners of the addresses in the registers of the thread that crashed are shown, and of the address that it
    /// accessed.
    #[arg(long, value_name = "CORE")]
    core: Option<PathBuf>,
    /// Look into blocks for the classes of C++ objects, read only.
    ///
    /// With --core, or with --pid and without FILE. An object with virtual functions begins with the address of its class's table of them, also
    /// in stripped programs. A file that was recorded with --inspect-live has the classes already.
    #[arg(long)]
    inspect_live: bool,
    /// With --pid and without FILE: end after this time, e.g. 30s [default: no limit]
    #[arg(long, value_name = "TIME", requires = "pid", value_parser = values::duration)]
    duration: Option<Duration>,
    /// Show the owners at this time after the beginning of the run, e.g. 90s [default: at its end].
    ///
    /// The snapshot that is nearest to that time is used. A negative time, as -30s, is before the end; 14:30 or 14:30:05 is a time of day.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = moment::parse)]
    at: Option<Moment>,
    /// Output format: text for people, json for programs
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = format())]
    format: Format,
    /// Number of earlier blocks to show at each address [default: 10; all of them in json]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Show also the whole stacks of neighbours
    #[arg(long)]
    details: bool,
    /// Print a file of commands for gdb, and exit.
    ///
    /// `heaptrace who --gdb-commands > heaptrace.gdb.py`, then in gdb `source heaptrace.gdb.py`. There, `heaptrace who EXPR [FILE]` shows the
    /// owner of the address that an expression has.
    #[arg(long, exclusive = true)]
    gdb_commands: bool,
    /// Most memory for the content of the file [default: 256MiB, and 256 bytes for each byte of the file]
    #[arg(long, value_name = "SIZE", value_parser = values::memory)]
    max_memory: Option<u64>,
    #[command(flatten)]
    wrapping: Wrapping,
    #[command(flatten)]
    naming: Naming,
}

impl Who {
    /// Why the arguments can't be used together, if they can't.
    pub(super) fn contradiction(&self) -> Option<String> {
        let (asked, file) = match divide(&self.words) {
            Ok(divided) => divided,
            Err(why) => return Some(why),
        };
        let is_process = self.pid.is_some() && file.is_none() && self.core.is_none();
        let register = asked.iter().find_map(|it| match it {
            Asked::Register(name) => Some(*name),
            Asked::Address(_) => None,
        });
        if self.gdb_commands {
            return None;
        }
        if let Some(name) = register.filter(|_| self.core.is_none()) {
            return Some(format!(
                "{name} is a register: name the core file that has its value with --core"
            ));
        }
        if asked.is_empty() && self.core.is_none() {
            return Some(
                "no address given: write one, e.g. 0x55d0c8a2b2d0, or name a core file with --core"
                    .to_owned(),
            );
        }
        if !is_process && self.duration.is_some() {
            return Some(
                "--duration is for a running process: leave out FILE and --core".to_owned(),
            );
        }
        if self.inspect_live && !is_process && self.core.is_none() {
            return Some(
                "--inspect-live is for a running process or a core file: name one with --pid and without FILE, or with --core; a file has \
                 classes if it was recorded with --inspect-live"
                    .to_owned(),
            );
        }
        if is_process && self.at.is_some() {
            return Some("--at is for a data file: name one, or leave out --at".to_owned());
        }
        None
    }
}

impl From<Who> for Action {
    fn from(who: Who) -> Self {
        if who.gdb_commands {
            return Self::GdbCommands;
        }
        let (asked, file) = divide(&who.words).unwrap_or_default();
        let source = match (file, who.pid, who.core) {
            (None, Some(_), None) => Source::Process {
                duration: who.duration,
            },
            (file, _, core) => Source::File {
                core,
                input: Input {
                    file: file.unwrap_or_else(|| "heaptrace.data".into()),
                    at: who.at,
                    from: None,
                    since_mark: None,
                    filters: Filters::default(),
                    shown: ShownLanguages::default(),
                    full_names: false,
                    max_memory: who.max_memory,
                    with_history: false,
                },
            },
        };
        Self::Who(Question {
            asked,
            source,
            pid: who.pid,
            inspect_live: who.inspect_live,
            format: who.format,
            ranking: Ranking {
                by: None,
                metric: None,
                top: who.top.map(|top| top as usize),
                details: who.details,
                histogram: false,
            },
            wrappers: who.wrapping.into(),
            full_names: who.naming.full_names,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Action, Asked, Question, Source, parse};

    fn question(line: &str) -> Question {
        let words = line.split(' ').map(Into::into);
        match parse(words).unwrap().action {
            Action::Who(question) => question,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn complaint(line: &str) -> String {
        let words = line.split(' ').map(Into::into);
        format!("{:?}", parse(words).unwrap_err())
    }

    /// Check that a question is about a file unless only a process is named, and that the file has the usual name if none is given.
    #[test]
    fn questions_have_a_source() {
        let of_file = |line: &str| match question(line).source {
            Source::File { input, core } => (input.file.display().to_string(), core.is_some()),
            Source::Process { .. } => panic!("{line}"),
        };
        let usual = "heaptrace.data".to_owned();
        assert_eq!(of_file("heaptrace who 0x10"), (usual.clone(), false));
        assert_eq!(of_file("heaptrace who --core c"), (usual.clone(), true));
        assert_eq!(of_file("heaptrace who --core c --pid 3"), (usual, true));
        let named = "heaptrace who 0x10 a.data --pid 3";
        assert_eq!(of_file(named), ("a.data".to_owned(), false));
        let process = question("heaptrace who --pid 3 0x10 --duration 2s");
        assert!(matches!(
            process.source,
            Source::Process { duration: Some(_) }
        ));
        assert_eq!(process.asked, [Asked::Address(16)]);
        let commands = ["heaptrace", "who", "--gdb-commands"];
        let commands = parse(commands.map(Into::into)).unwrap();
        assert_eq!(commands.action, Action::GdbCommands);
        assert!(!commands.action.traces());
        assert!(Action::Who(process).traces());
    }

    /// Check that questions that can have no answer are refused with what to do.
    #[test]
    fn questions_without_an_answer_are_refused() {
        for (line, reason) in [
            ("heaptrace who", "no address given"),
            ("heaptrace who a.data", "no address given"),
            ("heaptrace who --pid 3", "no address given"),
            ("heaptrace who rdi a.data", "rdi is a register"),
            ("heaptrace who a.data 0x10", "is no address"),
            ("heaptrace who 0x10 --duration 1s", "--pid"),
            (
                "heaptrace who 0x10 a.data --pid 3 --duration 1s",
                "leave out FILE",
            ),
            (
                "heaptrace who 0x10 a.data --inspect-live",
                "name one with --pid",
            ),
            (
                "heaptrace who 0x10 --pid 3 --at 1s",
                "--at is for a data file",
            ),
        ] {
            let message = complaint(line);
            assert!(message.contains(reason), "{line}: {message}");
        }
    }
}
