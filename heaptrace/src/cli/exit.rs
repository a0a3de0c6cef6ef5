//! The exit codes of heaptrace.
//!
//! Part of the command line. Must not know the actions.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use crate::probes::launch::LaunchError;

/// The exit code of a run that failed. A command that can't be started gives the code that a shell would give.
pub fn failure_code(error: &anyhow::Error) -> ExitCode {
    error
        .downcast_ref::<LaunchError>()
        .map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
}

/// The exit code for a command's status, as a shell gives it: 128 plus the signal's number for a killed
/// command.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(shell_code(status))
}

fn shell_code(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every status of a command gives the exit code that a shell would give.
    #[test]
    fn exit_codes_are_those_of_a_shell() {
        // As wait(2) gives them: the code in the second byte, the signal in the first.
        assert_eq!(shell_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(shell_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(shell_code(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(shell_code(ExitStatus::from_raw(libc::SIGKILL)), 137);
        // With a core dump.
        assert_eq!(shell_code(ExitStatus::from_raw(0x80 | libc::SIGSEGV)), 139);
    }
}
