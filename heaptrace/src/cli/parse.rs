//! Parses the arguments of the command line to an [`Invocation`].
//!
//! Part of the command line. Never exits the process: help, the version and mistakes are returned as a
//! [`Stop`].

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

use super::args::Cli;
use super::invocation::Invocation;

const SHORT_HELP: &str = "\
heaptrace shows which code allocates a program's heap memory. Choose what to trace:

  sudo heaptrace --pid PID                    watch a running process
  sudo heaptrace record -- COMMAND [ARGS]     record a command, then: heaptrace report

`heaptrace --help` lists all options.
";

/// A command line without an action: it asks for help or the version, or is wrong.
#[derive(Debug)]
pub enum Stop {
    /// No arguments at all.
    Bare,
    /// Help, the version, or an error message.
    Clap(Box<clap::Error>),
}

impl Stop {
    /// Prints it on standard output or standard error; the exit code is 0 for help and version, 2 for a
    /// mistake.
    pub fn print(&self) -> ExitCode {
        match self {
            Self::Bare => {
                // If standard error is closed, there is nowhere to report that.
                let _ = io::stderr().write_all(SHORT_HELP.as_bytes());
                ExitCode::from(2)
            }
            Self::Clap(error) => {
                let _ = error.print();
                ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
            }
        }
    }
}

/// Parses the command line.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Invocation, Stop> {
    let words: Vec<OsString> = words.into_iter().collect();
    let bare = words.len() <= 1;
    let cli = Cli::try_parse_from(words).map_err(|error| Stop::Clap(Box::new(hinted(error))))?;
    if let Some(contradiction) = cli.contradiction() {
        let error = Cli::command().error(ErrorKind::ArgumentConflict, contradiction);
        return Err(Stop::Clap(Box::new(error)));
    }
    let record = cli.is_record();
    cli.into_invocation().ok_or_else(|| {
        if bare {
            return Stop::Bare;
        }
        let example = if record {
            "heaptrace record"
        } else {
            "heaptrace"
        };
        Stop::Clap(Box::new(Cli::command().error(
            ErrorKind::MissingRequiredArgument,
            format!(
                "no target: choose what to trace with --pid PID, --all, or -- COMMAND [ARGS], \
                 e.g. `{example} -- ls -l`"
            ),
        )))
    })
}

/// How alike a word and a subcommand are, from 0 to 1, if the one is most likely a misspelling of the other.
const ALIKE: f64 = 0.85;

/// Adds a hint that clap can't give, because a target may follow `--`: a stray word is a misspelt subcommand, or a
/// command without its `--`.
fn hinted(mut error: clap::Error) -> clap::Error {
    let word = match error.kind() {
        ErrorKind::UnknownArgument => error.get(ContextKind::InvalidArg),
        ErrorKind::InvalidSubcommand => error.get(ContextKind::InvalidSubcommand),
        _ => None,
    };
    let Some(ContextValue::String(word)) = word else {
        return error;
    };
    // An option, or a word for which clap has a better suggestion.
    if word.starts_with('-') || error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    // After an option, clap no longer accepts subcommands.
    let hint = if Cli::command().find_subcommand(word).is_some() {
        format!("options come after the subcommand: `heaptrace {word} [OPTIONS]`")
    } else if let Some(name) = subcommand_like(word) {
        format!("did you mean `heaptrace {name}`?")
    } else {
        format!("to trace a command, put `--` before it: `-- {word}`")
    };
    error.insert(
        ContextKind::Suggested,
        ContextValue::StyledStrs(vec![hint.into()]),
    );
    error
}

/// The subcommand that a word is most likely a misspelling of.
fn subcommand_like(word: &str) -> Option<String> {
    // A path is the one of a command.
    if word.contains('/') {
        return None;
    }
    let cli = Cli::command();
    let names = cli.get_subcommands().filter(|it| !it.is_hide_set());
    names
        .map(|it| (strsim::jaro(word, it.get_name()), it.get_name()))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests;
