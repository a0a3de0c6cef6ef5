//! The modes of the measurements, and how a program is run in each.
//!
//! Part of bench. It must not know what the program does; the program prints `ns_per_operation` itself.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::measured::{Measured, Runs, Tracing};
use crate::{process, run, workspace};

/// A way to run a program.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Its name in the tables.
    pub name: &'static str,
    /// One sentence that explains the mode.
    pub meaning: &'static str,
    how: How,
}

/// What heaptrace does while the program runs.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Nothing.
    Alone,
    /// It traces another program.
    Beside,
    /// It traces this program, with these options.
    Traced(&'static [&'static str]),
}

/// The program alone.
pub const UNTRACED: Mode = Mode {
    name: "untraced",
    meaning: "The program alone.",
    how: How::Alone,
};

/// The program while another one is traced.
pub const BYSTANDER: Mode = Mode {
    name: "bystander",
    meaning: "The program alone, while heaptrace traces another program that uses the same C library.",
    how: How::Beside,
};

/// The lower limit for the cost of any tracing by probes.
pub const FLOOR: Mode = Mode {
    name: "empty probes",
    meaning: "Probes at the same locations, with kernel programs that return at once: the cost of the traps alone, which is the lower limit.",
    how: How::Traced(&["--probes", "empty"]),
};

/// Only few allocations are recorded.
pub const SAMPLED: Mode = Mode {
    name: "sampled",
    meaning: "One allocation recorded per 512 KiB on average.",
    how: How::Traced(&["--sample", "512KiB"]),
};

/// Only few allocations are recorded, and the others don't trap.
pub const FAST: Mode = Mode {
    name: "fast",
    meaning: "As sampled, with `--fast`: calls that are not sampled don't trap once the process was moved to the fast path.",
    how: How::Traced(&["--fast", "--sample", "512KiB"]),
};

/// The same, with as many samples as heaptrace takes by itself.
pub const FAST_BY_LOAD: Mode = Mode {
    name: "fast, rate by load",
    meaning: "With `--fast` alone: the sampling rate follows the load.",
    how: How::Traced(&["--fast"]),
};

/// Every allocation is recorded.
pub const EXACT: Mode = Mode {
    name: "exact",
    meaning: "Every allocation recorded with its stack.",
    how: How::Traced(&[]),
};

/// Every allocation is recorded, and each call traps once.
pub const EXACT_FAST: Mode = Mode {
    name: "exact, fast",
    meaning: "As exact, with `--fast`: a probe of heaptrace's own behind the call records it, once the process was moved to the fast path.",
    how: How::Traced(&["--fast", "--exact"]),
};

impl Mode {
    /// The words in front of a program so that heaptrace traces it into a data file; none if it is not traced.
    pub fn tracer(&self, data: &Path) -> Result<Vec<OsString>> {
        let How::Traced(options) = self.how else {
            return Ok(Vec::new());
        };
        let command = run::heaptrace(&arguments(options, data))?;
        let program = std::iter::once(command.get_program());
        let words = program.chain(command.get_args());
        Ok(words.map(OsString::from).collect())
    }
}

/// Runs the command in every mode, alternating between the modes, so that a machine that slows down affects
/// all modes.
pub fn measure(name: &str, command: &[OsString], modes: &[Mode], rounds: u32) -> Result<Vec<Runs>> {
    measure_by(name, modes, rounds, |mode| measure_once(mode, command, &[]))
}

/// The same, for a program that is run in another way.
pub fn measure_by(
    name: &str,
    modes: &[Mode],
    rounds: u32,
    mut once: impl FnMut(&Mode) -> Result<Measured>,
) -> Result<Vec<Runs>> {
    let mut runs = vec![Runs::default(); modes.len()];
    for round in 1..=rounds {
        for (mode, runs) in modes.iter().zip(&mut runs) {
            let measured =
                once(mode).with_context(|| format!("measuring {name}, {}", mode.name))?;
            println!(
                "    {name}, round {round} of {rounds}, {}: {:.1} ns",
                mode.name, measured.nanoseconds
            );
            runs.0.push(measured);
        }
    }
    Ok(runs)
}

/// Runs the command once; the options are for heaptrace, if it traces.
pub fn measure_once(mode: &Mode, command: &[OsString], options: &[&str]) -> Result<Measured> {
    match mode.how {
        How::Alone => alone(command),
        How::Beside => {
            let data = data_file()?;
            let args = ["record", "-o"].map(OsString::from);
            let other = ["--", "sleep", "600"].map(OsString::from);
            let mut tracer = run::heaptrace(&[&args[..], &[data.clone().into()], &other].concat())?
                .stderr(Stdio::null())
                .spawn()
                .context("cannot start heaptrace")?;
            let measured = wait_for(&data).and_then(|()| alone(command));
            process::signal(&tracer, "TERM")?;
            tracer.wait().context("cannot wait for heaptrace")?;
            measured
        }
        How::Traced(of_mode) => traced(&[of_mode, options].concat(), command),
    }
}

/// Runs a command without a tracer.
pub fn alone(command: &[OsString]) -> Result<Measured> {
    let (program, args) = command.split_first().context("an empty command")?;
    Measured::read(&process::output(Command::new(program).args(args))?, None)
}

/// Waits until a run has begun, which is when its data file appears.
pub fn wait_for(data: &Path) -> Result<()> {
    process::wait_for_file(data, "heaptrace did not begin to trace")
}

fn traced(options: &[&str], command: &[OsString]) -> Result<Measured> {
    let data = data_file()?;
    let mut args = arguments(options, &data);
    args.extend_from_slice(command);
    let printed = process::output(run::heaptrace(&args)?.stderr(Stdio::null()))?;
    // A run of empty probes has no data file.
    let tracing = data.exists().then(|| Tracing::of(&data)).transpose()?;
    Measured::read(&printed, tracing)
}

/// heaptrace's arguments, up to the command.
fn arguments(options: &[&str], data: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["record".into(), "-o".into(), data.into()];
    args.extend(options.iter().map(OsString::from));
    args.push("--".into());
    args
}

/// The path of the benchmarks' recordings.
pub fn data_file_path() -> PathBuf {
    workspace::target_dir().join("xtask/bench.data")
}

/// The path of the benchmarks' recordings; the previous file is removed.
pub fn data_file() -> Result<PathBuf> {
    let path = data_file_path();
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(path),
    }
}
