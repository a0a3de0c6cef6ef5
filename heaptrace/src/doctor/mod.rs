//! What this machine's kernel and these rights allow: the checks of `heaptrace doctor`.
//!
//! Stage: doctor. Each check is a pure function of what the kernel says of itself; [`examine`] asks
//! the kernel. Changes nothing that outlasts the process, and knows nothing of how checks are shown.

pub mod capabilities;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod hit;
mod kernel;
mod places;
mod rights;

use std::fs;

use thiserror::Error;

use crate::kernel::tracefs;
use capabilities::Capabilities;

/// Where a kernel says how far it is locked down.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Tracing works, with a limit.
    Warn,
    /// Tracing can't work.
    NotOk,
}

/// One line of the doctor's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it went.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do; empty where there is nothing to do.
    pub advice: String,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, found, "")
    }

    fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(name, Verdict::Warn, found, advice)
    }

    fn not_ok(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(name, Verdict::NotOk, found, advice)
    }

    fn new(
        name: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict,
            found: found.into(),
            advice: advice.into(),
        }
    }
}

/// Tracing can't work on this machine, or from where heaptrace runs, whoever asks for it.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{found}: {advice}")]
pub struct UnfitMachine {
    found: String,
    advice: String,
}

/// Refuses what would only fail later, or find nothing, in words that say so: a kernel that is too old or locked down,
/// and a container's process ids.
pub fn require() -> Result<(), UnfitMachine> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let lockdown = fs::read_to_string(LOCKDOWN).ok();
    check(&release, lockdown.as_deref(), pid_namespace().as_deref())
}

fn check(
    release: &str,
    lockdown: Option<&str>,
    pid_namespace: Option<&str>,
) -> Result<(), UnfitMachine> {
    for (check, head) in [
        (kernel::kernel(release), "this machine has"),
        (kernel::lockdown(lockdown), "kernel lockdown:"),
        (rights::pid_namespace(pid_namespace), "the pid namespace is"),
    ] {
        if check.verdict == Verdict::NotOk {
            return Err(UnfitMachine {
                found: format!("{head} {}", check.found),
                advice: format!("heaptrace can't trace; {}", check.advice),
            });
        }
    }
    Ok(())
}

/// The pid namespace of this process, as the kernel names it.
fn pid_namespace() -> Option<String> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.into_os_string().into_string().ok()
}

/// Looks at this machine.
pub fn examine() -> Vec<Check> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let status = read("/proc/self/status").unwrap_or_default();
    let granted = Capabilities::parse(&status).unwrap_or_default();
    let limits = read("/proc/self/limits").unwrap_or_default();
    let mut checks = vec![
        kernel::architecture(std::env::consts::ARCH),
        kernel::kernel(&read("/proc/sys/kernel/osrelease").unwrap_or_default()),
        rights::capabilities_required(granted, tracefs::is_mounted()),
        rights::capabilities_useful(granted),
        rights::user_namespace(read("/proc/self/uid_map").as_deref()),
        rights::pid_namespace(pid_namespace().as_deref()),
        kernel::lockdown(read(LOCKDOWN).as_deref()),
        kernel::btf(fs::metadata("/sys/kernel/btf/vmlinux").is_ok()),
    ];
    checks.extend(kernel::bpf());
    checks.extend([
        kernel::uprobes(read("/sys/bus/event_source/devices/uprobe/type").is_some()),
        kernel::tracefs(&kernel::find_uprobe_events()),
        rights::paranoid(
            read("/proc/sys/kernel/perf_event_paranoid").as_deref(),
            granted,
        ),
        rights::locked_memory(&limits),
        rights::open_files(&limits),
        places::examine(),
    ]);
    checks.extend(hit::examine());
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a kernel without what the program needs is refused by its name, with the one that
    /// is needed, and that one which is not understood gets its chance.
    #[test]
    fn old_kernels_are_refused() {
        let error = check("5.10.0-32-amd64\n", None, None)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Linux 5.10.0-32-amd64") && error.contains("needs Linux 5.17"),
            "{error}"
        );
        assert_eq!(
            check("5.17.1", Some("none [integrity] confidentiality\n"), None),
            Ok(())
        );
        assert_eq!(check("", None, None), Ok(()));
        let locked = check("6.12.0", Some("none integrity [confidentiality]\n"), None);
        let locked = locked.unwrap_err().to_string();
        assert!(locked.contains("lockdown=integrity"), "{locked}");
    }

    /// Check that a whole examination comes to an end on whatever machine this is, and that whoever
    /// is told "not ok" is told what to do.
    #[test]
    fn every_problem_has_advice() {
        let checks = examine();
        assert!(checks.len() > 12);
        for check in checks {
            assert_eq!(
                check.verdict == Verdict::Ok,
                check.advice.is_empty(),
                "{check:?}"
            );
        }
    }
}
