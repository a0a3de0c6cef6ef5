//! What the agent is allowed to do, and the command that grants what is missing.
//!
//! Stage: doctor. Looks at this process only; what the kernel can do is `machine.rs`'s business.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::kernel::tracefs;

/// A capability (see capabilities(7)) that heaptrace has a use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Loads the kernel program.
    Bpf,
    /// Lets it read memory and attach to perf events.
    Perfmon,
    /// Opens the very files that processes have mapped, by the kernel's links to them.
    CheckpointRestore,
    /// Reads the mappings of other users' processes.
    SysPtrace,
    /// Reads other users' program files, and the ids of probes in tracefs.
    DacReadSearch,
    /// Opens the file of tracefs in which probes are defined, once; given up before anything else is done.
    DacOverride,
    /// Maps the rings of perf beyond what each user may lock.
    IpcLock,
    /// Reads its ring before others run.
    SysNice,
    /// Mounts a tracefs of its own where the machine has none.
    SysAdmin,
}

impl Capability {
    /// What a trace takes, where tracefs is mounted.
    pub const REQUIRED: [Self; 6] = [
        Self::Bpf,
        Self::Perfmon,
        Self::CheckpointRestore,
        Self::SysPtrace,
        Self::DacReadSearch,
        Self::DacOverride,
    ];
    /// What makes a trace better, and is granted with the others.
    pub const USEFUL: [Self; 2] = [Self::IpcLock, Self::SysNice];

    fn bit(self) -> u32 {
        match self {
            Self::DacOverride => 1,
            Self::DacReadSearch => 2,
            Self::IpcLock => 14,
            Self::SysPtrace => 19,
            Self::SysAdmin => 21,
            Self::SysNice => 23,
            Self::Perfmon => 38,
            Self::Bpf => 39,
            Self::CheckpointRestore => 40,
        }
    }

    /// Its name in the kernel's documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
            Self::CheckpointRestore => "CAP_CHECKPOINT_RESTORE",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysNice => "CAP_SYS_NICE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// The effective set in the text of `/proc/PID/status`; `None` where it is not there.
    pub fn parse(status: &str) -> Option<Self> {
        let digits = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(digits.trim(), 16).ok().map(Self)
    }

    /// Whether it gives the right, by itself or as part of a larger one.
    pub fn allows(self, capability: Capability) -> bool {
        let has = |capability: Capability| self.0 & (1 << capability.bit()) != 0;
        match capability {
            // The kernel takes CAP_SYS_ADMIN wherever it asks for one of these.
            Capability::Bpf | Capability::Perfmon | Capability::CheckpointRestore => {
                has(capability) || has(Capability::SysAdmin)
            }
            _ => has(capability),
        }
    }

    /// Which of these it does not give.
    pub fn lacking(self, wanted: &[Capability]) -> Vec<Capability> {
        wanted
            .iter()
            .copied()
            .filter(|&capability| !self.allows(capability))
            .collect()
    }
}

/// Tracing is not permitted.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MissingRights {
    /// This process lacks capabilities.
    #[error(
        "not permitted: {} missing ({REASON})\n{}",
        are_or_is(missing),
        grant(executable)
    )]
    Capabilities {
        /// What it lacks.
        missing: Vec<Capability>,
        /// The program to grant it to.
        executable: PathBuf,
    },
    /// This process has capabilities, but over a user namespace only (a container without rights).
    #[error(
        "not permitted: the capabilities of this process are those of a user namespace, which give no right to \
         trace\n{NAMESPACE_ADVICE}"
    )]
    UserNamespace,
}

const REASON: &str = "heaptrace probes programs and reads the memory of processes";

/// What to do inside an unprivileged container.
pub(super) const NAMESPACE_ADVICE: &str =
    "run it outside the container, or in a privileged one that shares the host's user namespace";

fn are_or_is(missing: &[Capability]) -> String {
    let names: Vec<_> = missing.iter().map(|capability| capability.name()).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

/// The commands that grant every right.
pub(super) fn grant(executable: &Path) -> String {
    let executable = quoted(&executable.to_string_lossy());
    format!(
        "run it with sudo:         sudo {executable} ...\n\
         or let a group trace (docs/install-for-a-group.md):\n\
         sudo chgrp GROUP {executable} && sudo chmod 0750 {executable}\n\
         sudo setcap {} {executable}",
        grantable(tracefs::is_mounted())
    )
}

/// What a file that a group may run has to be granted, as setcap(8) reads it.
pub fn grantable(has_tracefs: bool) -> String {
    let names: Vec<String> = required(has_tracefs)
        .iter()
        .chain(&Capability::USEFUL)
        .map(|capability| capability.name().to_lowercase())
        .collect();
    format!("{}+ep", names.join(","))
}

/// What a trace takes on a machine that has tracefs mounted, or has not.
pub(super) fn required(has_tracefs: bool) -> Vec<Capability> {
    let mounts = (!has_tracefs).then_some(Capability::SysAdmin);
    Capability::REQUIRED.into_iter().chain(mounts).collect()
}

/// A path as one word of a shell command.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%=:,".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// The program that runs, as a command can name it.
pub(super) fn executable() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("heaptrace"))
}

/// Whether a `/proc/PID/uid_map` is that of the machine itself, and of no user namespace.
pub(super) fn is_initial_user_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Says whether this process may trace at all, and if not, why and what to do.
///
/// Where the kernel does not tell (no `/proc`), nothing is refused here: the first call that needs
/// the right then fails with the kernel's own error.
pub fn require() -> Result<(), MissingRights> {
    let read = |file: &str| std::fs::read_to_string(file).ok();
    check(
        read("/proc/self/status").as_deref(),
        read("/proc/self/uid_map").as_deref(),
        tracefs::is_mounted(),
        executable(),
    )
}

fn check(
    status: Option<&str>,
    uid_map: Option<&str>,
    has_tracefs: bool,
    executable: PathBuf,
) -> Result<(), MissingRights> {
    if let Some(capabilities) = status.and_then(Capabilities::parse) {
        let missing = capabilities.lacking(&required(has_tracefs));
        if !missing.is_empty() {
            return Err(MissingRights::Capabilities {
                missing,
                executable,
            });
        }
    }
    if uid_map.is_some_and(|map| !is_initial_user_namespace(map)) {
        return Err(MissingRights::UserNamespace);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "Name:\tbash\nCapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\n\
                        CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";
    const USER: &str = "Name:\tbash\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n";
    const MACHINE: &str = "         0          0 4294967295\n";

    /// Check that the effective set is read, not one of its neighbours.
    #[test]
    fn effective_set() {
        assert_eq!(
            Capabilities::parse(ROOT),
            Some(Capabilities(0x1ff_ffff_ffff))
        );
        assert_eq!(Capabilities::parse(USER), Some(Capabilities(0)));
        assert_eq!(Capabilities::parse("CapPrm:\t1\n"), None);
        assert_eq!(Capabilities::parse("CapEff:\tmany\n"), None);
    }

    /// Check that CAP_SYS_ADMIN counts for what the kernel takes it for, and for nothing else.
    #[test]
    fn sys_admin_implies() {
        let admin = Capabilities(1 << 21);
        let implied = [
            Capability::Bpf,
            Capability::Perfmon,
            Capability::CheckpointRestore,
        ];
        assert_eq!(admin.lacking(&implied), []);
        assert_eq!(admin.lacking(&Capability::USEFUL), Capability::USEFUL);
        let bpf = Capabilities(1 << 39);
        assert_eq!(
            bpf.lacking(&implied),
            [Capability::Perfmon, Capability::CheckpointRestore]
        );
    }

    /// Check that the error names what is missing and both commands that grant it.
    #[test]
    fn error_says_what_to_do() {
        let error = check(
            Some(USER),
            Some(MACHINE),
            true,
            "/opt/my tools/heaptrace".into(),
        )
        .unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("CAP_BPF, CAP_PERFMON, ") && message.contains(" are missing"),
            "{message}"
        );
        assert!(
            message.contains("sudo '/opt/my tools/heaptrace' ..."),
            "{message}"
        );
        assert!(message.contains("sudo setcap cap_bpf,"), "{message}");
        assert!(
            message.ends_with("+ep '/opt/my tools/heaptrace'"),
            "{message}"
        );
    }

    /// Check that the right to mount is asked for only where there is something to mount.
    #[test]
    fn tracefs_decides() {
        assert!(!grantable(true).contains("sys_admin"));
        assert!(grantable(false).contains(",cap_sys_admin,"));
    }

    /// Check that root in a user namespace is told apart from root.
    #[test]
    fn user_namespace() {
        let exe = || PathBuf::from("heaptrace");
        assert_eq!(check(Some(ROOT), Some(MACHINE), true, exe()), Ok(()));
        assert_eq!(
            check(Some(ROOT), Some("0 1000 1\n"), true, exe()),
            Err(MissingRights::UserNamespace)
        );
        assert_eq!(check(None, None, true, exe()), Ok(()));
    }

    /// Check that a path with a quote stays one word for a shell.
    #[test]
    fn quoting() {
        assert_eq!(quoted("/usr/bin/heaptrace"), "/usr/bin/heaptrace");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
