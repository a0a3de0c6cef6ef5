//! What the agent is allowed to do, and the command that grants what is missing.
//!
//! Stage: probes. Looks at this process only; what the kernel can do is `machine.rs`'s business.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A capability (see capabilities(7)) that heaptrace has a use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Defines uprobes through tracefs, loads the kernel program.
    SysAdmin,
    /// Loads the kernel program; part of `SysAdmin`.
    Bpf,
    /// Lets it read memory and attach to perf events; part of `SysAdmin`.
    Perfmon,
    /// Reads the mappings of other users' processes, and holds children at their birth.
    SysPtrace,
    /// Reads other users' program files.
    DacReadSearch,
}

impl Capability {
    /// What makes a trace possible: the second and third come with the first.
    pub const REQUIRED: [Self; 3] = [Self::SysAdmin, Self::Bpf, Self::Perfmon];
    /// What is missed only where the target belongs to somebody else.
    pub const USEFUL: [Self; 2] = [Self::SysPtrace, Self::DacReadSearch];

    fn bit(self) -> u32 {
        match self {
            Self::DacReadSearch => 2,
            Self::SysPtrace => 19,
            Self::SysAdmin => 21,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }

    /// Its name in the kernel's documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
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
            Capability::Bpf | Capability::Perfmon => has(capability) || has(Capability::SysAdmin),
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

const REASON: &str = "uprobes are defined through tracefs, and the kernel program reads the memory of \
                      other processes";

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
        "run it with sudo:       sudo {executable} ...\n\
         or grant it for good:   sudo setcap cap_sys_admin,cap_sys_ptrace,cap_dac_read_search+ep {executable}"
    )
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
        executable(),
    )
}

fn check(
    status: Option<&str>,
    uid_map: Option<&str>,
    executable: PathBuf,
) -> Result<(), MissingRights> {
    if let Some(capabilities) = status.and_then(Capabilities::parse) {
        let missing = capabilities.lacking(&Capability::REQUIRED);
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
        assert_eq!(admin.lacking(&Capability::REQUIRED), []);
        assert_eq!(admin.lacking(&Capability::USEFUL), Capability::USEFUL);
        let bpf = Capabilities(1 << 39);
        assert_eq!(
            bpf.lacking(&Capability::REQUIRED),
            [Capability::SysAdmin, Capability::Perfmon]
        );
    }

    /// Check that the error names what is missing and both commands that grant it.
    #[test]
    fn error_says_what_to_do() {
        let error = check(Some(USER), Some(MACHINE), "/opt/my tools/heaptrace".into()).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON are missing"),
            "{message}"
        );
        assert!(
            message.contains("sudo '/opt/my tools/heaptrace' ..."),
            "{message}"
        );
        assert!(
            message.contains("sudo setcap cap_sys_admin,cap_sys_ptrace,cap_dac_read_search+ep '/opt/my tools/heaptrace'"),
            "{message}"
        );
    }

    /// Check that root in a user namespace is told apart from root.
    #[test]
    fn user_namespace() {
        let exe = || PathBuf::from("heaptrace");
        assert_eq!(check(Some(ROOT), Some(MACHINE), exe()), Ok(()));
        assert_eq!(
            check(Some(ROOT), Some("0 1000 1\n"), exe()),
            Err(MissingRights::UserNamespace)
        );
        assert_eq!(check(None, None, exe()), Ok(()));
    }

    /// Check that a path with a quote stays one word for a shell.
    #[test]
    fn quoting() {
        assert_eq!(quoted("/usr/bin/heaptrace"), "/usr/bin/heaptrace");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
