//! Runs other programs, names them in errors, and gets root's rights where needed.
//!
//! Shared by all tasks. It must not know the purpose of any program.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail};

/// Whether this process runs as root.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// The path of a program, found through PATH.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

/// Whether `path` is an executable file.
pub fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A command that runs `program` as root: directly if this process is root, otherwise through sudo.
///
/// sudo drops the environment, so the variables that the program needs are passed by name.
pub fn as_root(program: impl AsRef<OsStr>, variables: &[(&str, OsString)]) -> Result<Command> {
    let program = program.as_ref();
    if is_root() {
        let mut command = Command::new(program);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        return Ok(command);
    }
    let Some(sudo) = find_program("sudo") else {
        bail!(
            "{} must run as root: run this task as root, or install sudo",
            program.display()
        );
    };
    let mut command = Command::new(sudo);
    if !variables.is_empty() {
        command.arg("env");
        for (name, value) in variables {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value);
            command.arg(word);
        }
    }
    command.arg(program);
    Ok(command)
}

/// Sends a signal to a child, as root: sudo passes it on if the child runs under it.
pub fn signal(child: &Child, name: &str) -> Result<()> {
    run(as_root("kill", &[])?
        .args(["-s", name])
        .arg(child.id().to_string()))
}

/// Waits until a file is there, for a minute at most; `otherwise` says what has failed then.
pub fn wait_for_file(path: &Path, otherwise: &str) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let began = Instant::now();
    while !path.exists() {
        if began.elapsed() > PATIENCE {
            bail!("{otherwise}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Runs the command to its end; any failure is an error that names the command.
pub fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed: {status}", describe(command));
    }
    Ok(())
}

/// Runs the command to its end.
pub fn status(command: &mut Command) -> Result<ExitStatus> {
    command
        .status()
        .with_context(|| format!("cannot run `{}`", describe(command)))
}

/// Runs the command to its end and returns its output. Its standard error is passed through.
pub fn output(command: &mut Command) -> Result<String> {
    output_with(command, Stdio::null())
}

/// Runs the command to its end with this input, and returns its output. Its standard error is passed through.
pub fn output_with(command: &mut Command, input: impl Into<Stdio>) -> Result<String> {
    let output = command
        .stdin(input)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run `{}`", describe(command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", describe(command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("the output of `{}` is not UTF-8", describe(command)))
}

/// The output of the command, or `None` if it fails.
pub fn query(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8(output.stdout).ok()
}

/// The exit code that a shell would report for the status.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// The command line, for messages.
pub fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(OsStr::to_string_lossy));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a signal becomes the exit code that a shell would report, and that a plain code stays.
    #[test]
    fn exit_codes_match_those_of_shells() {
        let killed = Command::new("sh").args(["-c", "kill -TERM $$"]).status();
        assert_eq!(exit_code(killed.unwrap()), 143);
        let plain = Command::new("sh").args(["-c", "exit 7"]).status();
        assert_eq!(exit_code(plain.unwrap()), 7);
    }

    /// Check that the error of a failed command names the command and its status.
    #[test]
    fn failures_name_the_command() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("sh -c exit 3") && text.contains('3'),
            "{text}"
        );
    }

    /// Check that a program is found through PATH, and that a missing program is not found.
    #[test]
    fn programs_are_found_through_path() {
        assert!(find_program("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find_program("no-program-has-this-name"), None);
    }
}
