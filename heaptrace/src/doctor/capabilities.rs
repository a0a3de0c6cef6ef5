//! The capabilities that a trace needs, and the commands that grant them.
//!
//! Part of `doctor`. Examines this process only. The kernel's abilities are checked in `kernel.rs`.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::kernel::tracefs;

/// A capability (see capabilities(7)) that heaptrace uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Loads the kernel program.
    Bpf,
    /// Lets the kernel program read memory and attach to perf events.
    Perfmon,
    /// Opens the files that processes have mapped, by the kernel's links to them.
    CheckpointRestore,
    /// Reads the mappings of other users' processes.
    SysPtrace,
    /// Reads other users' program files, and the ids of probes in tracefs.
    DacReadSearch,
    /// Opens the tracefs file that defines probes, once. Given up before anything else is done.
    DacOverride,
    /// Maps perf's rings beyond the limit of locked memory per user.
    IpcLock,
    /// Gives the thread that reads the ring precedence.
    SysNice,
    /// Mounts a tracefs if the machine has none. Opens perf events if the kernel restricts perf further.
    SysAdmin,
}

impl Capability {
    /// Capabilities that a trace needs if tracefs is mounted.
    pub const REQUIRED: [Self; 6] = [
        Self::Bpf,
        Self::Perfmon,
        Self::CheckpointRestore,
        Self::SysPtrace,
        Self::DacReadSearch,
        Self::DacOverride,
    ];
    /// Capabilities that improve a trace. They are granted with the required ones.
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
    /// The effective set in the text of `/proc/PID/status`, if the text has it.
    pub fn parse(status: &str) -> Option<Self> {
        let digits = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(digits.trim(), 16).ok().map(Self)
    }

    /// Whether the set has the capability, or one that includes it.
    pub fn allows(self, capability: Capability) -> bool {
        let has = |capability: Capability| self.0 & (1 << capability.bit()) != 0;
        match capability {
            // The kernel accepts CAP_SYS_ADMIN in place of each of these.
            Capability::Bpf | Capability::Perfmon | Capability::CheckpointRestore => {
                has(capability) || has(Capability::SysAdmin)
            }
            _ => has(capability),
        }
    }

    /// Which of these the set does not allow.
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
    /// The capabilities of this process are valid in a user namespace only (an unprivileged container).
    #[error(
        "not permitted: the capabilities of this process are valid in a user namespace only, which is not enough to \
         trace\n{NAMESPACE_ADVICE}"
    )]
    UserNamespace,
}

/// File with the level of the kernel's restriction of perf.
pub(super) const PERF_PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

const REASON: &str = "heaptrace probes programs and reads the memory of processes";

/// Advice for an unprivileged container.
pub(super) const NAMESPACE_ADVICE: &str = "run heaptrace outside the container, or in a privileged one that shares the host's user namespace";

fn are_or_is(missing: &[Capability]) -> String {
    let names: Vec<_> = missing.iter().map(|capability| capability.name()).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

/// The commands that grant every capability.
pub(super) fn grant(executable: &Path) -> String {
    let executable = quoted(&executable.to_string_lossy());
    let capabilities = grantable(tracefs::is_mounted(), is_perf_restricted_here());
    format!(
        "run it with sudo:         sudo {executable} ...\n\
         or let a group trace (docs/install-for-a-group.md):\n\
         sudo chgrp GROUP {executable} && sudo chmod 0750 {executable}\n\
         sudo setcap {capabilities} {executable}"
    )
}

/// The argument of setcap(8) for a file that a group may run.
fn grantable(has_tracefs: bool, is_perf_restricted: bool) -> String {
    let mut granted = required(has_tracefs);
    if is_perf_restricted && !granted.contains(&Capability::SysAdmin) {
        granted.push(Capability::SysAdmin);
    }
    granted.extend(Capability::USEFUL);
    let names: Vec<String> = granted
        .iter()
        .map(|capability| capability.name().to_lowercase())
        .collect();
    format!("{}+ep", names.join(","))
}

/// Whether this kernel restricts perf further than the unmodified kernel.
pub fn is_perf_restricted_here() -> bool {
    is_perf_restricted(std::fs::read_to_string(PERF_PARANOID).ok().as_deref())
}

/// Whether a level of `kernel.perf_event_paranoid` is above those of the unmodified kernel. Kernels of Debian and Ubuntu
/// then require CAP_SYS_ADMIN to open a perf event; CAP_PERFMON is not enough.
pub(super) fn is_perf_restricted(level: Option<&str>) -> bool {
    /// The highest level of the unmodified kernel.
    const MOST: i32 = 2;
    let level = level.and_then(|level| level.trim().parse::<i32>().ok());
    level.is_some_and(|level| level > MOST)
}

/// The capabilities that a trace needs, if tracefs is mounted or not.
///
/// A restricted perf is not included: the unmodified kernel accepts high levels too, and does not restrict perf further.
pub(super) fn required(has_tracefs: bool) -> Vec<Capability> {
    let mounts = (!has_tracefs).then_some(Capability::SysAdmin);
    Capability::REQUIRED.into_iter().chain(mounts).collect()
}

/// Quotes a path as one word of a shell command.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%=:,".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// The path of the running program.
pub(super) fn executable() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("heaptrace"))
}

/// Whether the text of a `/proc/PID/uid_map` is that of the machine's own user namespace.
pub(super) fn is_initial_user_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Checks whether this process may trace at all. An error says why not, and what to do.
///
/// If `/proc` is missing, nothing is refused here. The first call that needs a capability then fails with the
/// kernel's own error.
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
    use super::super::check::documents_exist;
    use super::*;

    const ROOT: &str = "Name:\tbash\nCapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\n\
                        CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";
    const USER: &str = "Name:\tbash\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n";
    const MACHINE: &str = "         0          0 4294967295\n";

    /// Check that the effective set is read, and not another one.
    #[test]
    fn effective_set_is_read() {
        assert_eq!(
            Capabilities::parse(ROOT),
            Some(Capabilities(0x1ff_ffff_ffff))
        );
        assert_eq!(Capabilities::parse(USER), Some(Capabilities(0)));
        assert_eq!(Capabilities::parse("CapPrm:\t1\n"), None);
        assert_eq!(Capabilities::parse("CapEff:\tmany\n"), None);
    }

    /// Check that CAP_SYS_ADMIN counts for the capabilities that it includes, and for no others.
    #[test]
    fn sys_admin_includes_others() {
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

    /// Check that the error names the missing capabilities, both commands that grant them, and a document that exists.
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
        assert!(documents_exist(&message), "{message}");
    }

    /// Check that the printed command grants CAP_SYS_ADMIN exactly if tracefs has to be mounted or perf is restricted.
    #[test]
    fn sys_admin_is_granted_if_needed() {
        assert!(!grantable(true, false).contains("sys_admin"));
        for (has_tracefs, is_perf_restricted) in [(false, false), (true, true), (false, true)] {
            let granted = grantable(has_tracefs, is_perf_restricted);
            assert_eq!(granted.matches(",cap_sys_admin,").count(), 1, "{granted}");
        }
    }

    /// Check that perf counts as restricted only at levels that the unmodified kernel does not have.
    #[test]
    fn perf_is_restricted_above_two() {
        for level in ["-1\n", "0", "2\n", "", "many"] {
            assert!(!is_perf_restricted(Some(level)), "{level:?}");
        }
        assert!(!is_perf_restricted(None));
        assert!(is_perf_restricted(Some("3\n")) && is_perf_restricted(Some("4")));
    }

    /// Check that root in a user namespace is refused, and the machine's root is not.
    #[test]
    fn root_of_a_user_namespace_is_refused() {
        let exe = || PathBuf::from("heaptrace");
        assert_eq!(check(Some(ROOT), Some(MACHINE), true, exe()), Ok(()));
        assert_eq!(
            check(Some(ROOT), Some("0 1000 1\n"), true, exe()),
            Err(MissingRights::UserNamespace)
        );
        assert_eq!(check(None, None, true, exe()), Ok(()));
    }

    /// Check that a path with a quote or without characters is one word for a shell.
    #[test]
    fn paths_are_quoted_as_one_word() {
        assert_eq!(quoted("/usr/bin/heaptrace"), "/usr/bin/heaptrace");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
