//! Measures a server while its own benchmark asks it, with a tracer of the server alone.
//!
//! Part of bench. The time is that of the requests, without the start and the end of server and tracer. The processor time is the server's,
//! by its own account.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::measured::{Measured, Tracing};
use super::mode::{Mode, data_file};
use super::programs::server_time;
use crate::process;

/// The script that starts a server, in a folder of its own.
pub(super) struct Serving<'a> {
    pub(super) script: &'a [OsString],
    pub(super) folder: &'a Path,
    /// The program that measures the time of another one.
    pub(super) timed: &'a Path,
}

impl Serving<'_> {
    /// Runs it once, with heaptrace in this mode.
    pub(super) fn in_mode(&self, mode: &Mode) -> Result<Measured> {
        let data = data_file()?;
        let measured = self.under(&mode.tracer(&data)?)?;
        let tracing = data.exists().then(|| Tracing::of(&data)).transpose()?;
        Ok(Measured {
            tracing,
            ..measured
        })
    }

    /// Runs it once, with these words in front of the server.
    pub(super) fn under(&self, tracer: &[OsString]) -> Result<Measured> {
        let mut command = Command::new("env");
        command.arg(variable("TRACER", tracer)?);
        command.arg(variable("TIMED", &[self.timed.into()])?);
        // What tracers say of their work is of no interest.
        command.args(self.script).stderr(Stdio::null());
        let output = command.stdin(Stdio::null()).output();
        let output =
            output.with_context(|| format!("cannot run `{}`", process::describe(&command)))?;
        if !output.status.success() {
            bail!(
                "`{}` failed: {}",
                process::describe(&command),
                output.status
            );
        }
        // The server prints there, too.
        let measured = Measured::read(&String::from_utf8_lossy(&output.stdout), None)?;
        Ok(Measured {
            cpu_ns: Some(server_time(self.folder)?),
            ..measured
        })
    }
}

/// A variable that a shell divides into these words again.
fn variable(name: &str, words: &[OsString]) -> Result<OsString> {
    let divides = |word: &&OsString| {
        word.to_string_lossy()
            .contains([' ', '\t', '\n', '*', '?', '['])
    };
    if let Some(word) = words.iter().find(divides) {
        bail!(
            "`{}` is not one word for a shell",
            PathBuf::from(word).display()
        );
    }
    let mut text = OsString::from(name);
    text.push("=");
    text.push(words.join(" ".as_ref()));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that words stay words, and that one that a shell would divide is refused.
    #[test]
    fn variables_are_divided_again() {
        let words = ["heaptrace", "record", "--"].map(OsString::from);
        assert_eq!(
            variable("TRACER", &words).unwrap(),
            "TRACER=heaptrace record --"
        );
        assert_eq!(variable("TRACER", &[]).unwrap(), "TRACER=");
        assert!(variable("TIMED", &["/a folder/timed".into()]).is_err());
    }
}
