//! Running other programs: naming them when they fail, and getting root's rights for those that need them.
//!
//! Shared by all tasks. It must not know what any of the programs does.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, bail};

/// Whether this process runs as root.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// The path of the program `name`, as a shell would find it.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

/// Whether `path` is a file that can be executed.
pub fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A command that runs `program` as root: itself where that's what we are, else through sudo.
///
/// sudo drops the environment, so the variables that the program needs are handed over by name.
pub fn as_root(program: impl AsRef<OsStr>, variables: &[(&str, OsString)]) -> Result<Command> {
    let program = program.as_ref();
    if is_root() {
        let mut command = Command::new(program);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        return Ok(command);
    }
    let Some(sudo) = find_program("sudo") else {
        bail!(
            "{} needs root's rights: run this as root, or install sudo",
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

/// Run the command to its end; anything but success is an error that names it.
pub fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed: {status}", describe(command));
    }
    Ok(())
}

/// Run the command to its end.
pub fn status(command: &mut Command) -> Result<ExitStatus> {
    command
        .status()
        .with_context(|| format!("cannot run `{}`", describe(command)))
}

/// Run the command to its end and take what it printed; its standard error is passed through.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run `{}`", describe(command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", describe(command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed something that is no UTF-8", describe(command)))
}

/// What the command prints, or nothing where it fails: "not known" is an answer here.
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

/// The exit code that a shell would show for the status.
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

    /// Check that an exit by a signal becomes the code that a shell would give it, and that a plain code stays.
    #[test]
    fn exit_codes_are_the_shells() {
        let killed = Command::new("sh").args(["-c", "kill -TERM $$"]).status();
        assert_eq!(exit_code(killed.unwrap()), 143);
        let plain = Command::new("sh").args(["-c", "exit 7"]).status();
        assert_eq!(exit_code(plain.unwrap()), 7);
    }

    /// Check that a failing command's error names the command and its status.
    #[test]
    fn failures_name_the_command() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("sh -c exit 3") && text.contains('3'),
            "{text}"
        );
    }

    /// Check that a program is found through PATH, and that one that doesn't exist is not.
    #[test]
    fn programs_are_found_through_path() {
        assert!(find_program("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find_program("no-program-has-this-name"), None);
    }
}
