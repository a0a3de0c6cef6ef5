//! What this machine's kernel and these rights allow: the checks of `heaptrace doctor`.
//!
//! Stage: probes. Each check is a pure function of what the kernel says of itself; [`examine`] asks
//! the kernel. Changes nothing that outlasts the process, and knows nothing of how checks are shown.

mod hit;
mod kernel;
mod places;
mod rights;

use std::fs;

pub use kernel::{MINIMUM_KERNEL, RECOMMENDED_KERNEL, version as kernel_version};
use thiserror::Error;

use super::capabilities::Capabilities;
use super::tracefs;

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

/// Tracing can't work on this machine, whoever asks for it.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("this machine has {found}, and heaptrace {advice}")]
pub struct UnfitMachine {
    found: String,
    advice: String,
}

/// The running kernel's version; the oldest that will do where it can't be told.
pub fn running_kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    kernel_version(&release).unwrap_or(MINIMUM_KERNEL)
}

/// Refuses a kernel that is too old, in words that say so: it would only refuse the program.
pub fn require() -> Result<(), UnfitMachine> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    check(&release)
}

fn check(release: &str) -> Result<(), UnfitMachine> {
    match kernel::kernel(release) {
        Check {
            verdict: Verdict::NotOk,
            found,
            advice,
            ..
        } => Err(UnfitMachine { found, advice }),
        _ => Ok(()),
    }
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
        rights::pid_namespace(
            fs::read_link("/proc/self/ns/pid")
                .ok()
                .and_then(|link| link.into_os_string().into_string().ok())
                .as_deref(),
        ),
        kernel::lockdown(read("/sys/kernel/security/lockdown").as_deref()),
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
        let error = check("5.10.0-32-amd64\n").unwrap_err().to_string();
        assert!(
            error.contains("Linux 5.10.0-32-amd64") && error.contains("needs Linux 5.17"),
            "{error}"
        );
        assert_eq!(check("5.17.1"), Ok(()));
        assert_eq!(check(""), Ok(()));
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
