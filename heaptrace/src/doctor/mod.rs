//! Stage doctor: checks whether this machine's kernel and the rights of this process allow tracing.
//!
//! Most checks are pure functions of texts that the kernel provides; [`examine`] reads these. Changes nothing that
//! outlasts the process. Must not know how checks are displayed.

pub mod capabilities;
mod check;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod kernel;
mod probe_cost;
mod probe_locations;
mod rights;

use std::fs;

use thiserror::Error;

use crate::kernel::tracefs;
use capabilities::Capabilities;
pub use check::{Check, Verdict};

/// File in which the kernel names its lockdown mode.
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Tracing can't work on this machine, or in this container, with any rights.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{found}: {advice}")]
pub struct UnfitMachine {
    found: String,
    advice: String,
}

/// Refuses early what would fail later or find nothing: a kernel that is too old or locked down, and the pid namespace
/// of a container.
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

/// The kernel's name of this process's pid namespace.
fn pid_namespace() -> Option<String> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.into_os_string().into_string().ok()
}

/// Runs all checks on this machine.
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
        rights::paranoid(read(capabilities::PERF_PARANOID).as_deref(), granted),
        rights::locked_memory(&limits),
        rights::open_files(&limits),
        probe_locations::examine(),
    ]);
    checks.extend(probe_cost::examine());
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a kernel that is too old is refused with its version and the version that is needed, and that an
    /// unknown version is accepted.
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

    /// Check that an examination completes on any machine, and that exactly the checks with a problem have advice.
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
