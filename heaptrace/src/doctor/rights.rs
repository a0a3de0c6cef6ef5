//! Checks of what this process may do: capabilities, namespaces and limits.
//!
//! Stage: doctor. Pure functions of what `/proc` says; what the kernel can do is `kernel.rs`'s business.

use super::Check;
use crate::doctor::capabilities::{
    self, Capabilities, Capability, NAMESPACE_ADVICE, is_initial_user_namespace,
};

fn names(capabilities: &[Capability]) -> String {
    let names: Vec<_> = capabilities.iter().map(|c| c.name()).collect();
    names.join(", ")
}

pub(super) fn capabilities_required(granted: Capabilities, has_tracefs: bool) -> Check {
    const NAME: &str = "capabilities";
    let required = capabilities::required(has_tracefs);
    let missing = granted.lacking(&required);
    if missing.is_empty() {
        Check::ok(NAME, names(&required))
    } else {
        Check::not_ok(
            NAME,
            format!("without {}", names(&missing)),
            capabilities::grant(&capabilities::executable()),
        )
    }
}

pub(super) fn capabilities_useful(granted: Capabilities) -> Check {
    const NAME: &str = "capabilities of use";
    let missing = granted.lacking(&Capability::USEFUL);
    if missing.is_empty() {
        Check::ok(NAME, names(&Capability::USEFUL))
    } else {
        Check::warn(
            NAME,
            format!("without {}", names(&missing)),
            "without CAP_SYS_NICE a busy machine may lose events, without CAP_IPC_LOCK a second run may find no room for its \
             rings; sudo gives both",
        )
    }
}

pub(super) fn user_namespace(uid_map: Option<&str>) -> Check {
    const NAME: &str = "user namespace";
    match uid_map {
        None => Check::ok(NAME, "none in this kernel"),
        Some(map) if is_initial_user_namespace(map) => Check::ok(NAME, "the machine's own"),
        Some(_) => Check::not_ok(
            NAME,
            "a container's: its capabilities give no right to trace",
            NAMESPACE_ADVICE,
        ),
    }
}

pub(super) fn pid_namespace(link: Option<&str>) -> Check {
    const NAME: &str = "pid namespace";
    // PROC_PID_INIT_INO, the same on every kernel.
    match link {
        Some("pid:[4026531836]") => Check::ok(NAME, "the machine's own"),
        None => Check::warn(NAME, "unknown", "mount /proc: heaptrace reads it"),
        Some(_) => Check::not_ok(
            NAME,
            "a container's: the kernel's process ids are not those seen here",
            "run it outside the container, or in one that shares the host's (docker run --pid=host)",
        ),
    }
}

pub(super) fn paranoid(text: Option<&str>, granted: Capabilities) -> Check {
    const NAME: &str = "perf_event_paranoid";
    match text.map(str::trim) {
        None => Check::not_ok(
            NAME,
            "no perf events",
            "use a kernel built with CONFIG_PERF_EVENTS=y",
        ),
        Some(level) if granted.allows(Capability::Perfmon) => {
            Check::ok(NAME, format!("{level}, does not matter with CAP_PERFMON"))
        }
        Some(level) => Check::warn(
            NAME,
            format!("{level}, without CAP_PERFMON"),
            "see capabilities above",
        ),
    }
}

/// Soft and hard value of a limit in the text of `/proc/PID/limits`; `u64::MAX` is no limit.
fn limit(limits: &str, name: &str) -> Option<(u64, u64)> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = rest.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        digits => digits.parse().ok(),
    });
    Some((values.next()??, values.next()??))
}

fn limit_text(value: u64) -> String {
    if value == u64::MAX {
        "unlimited".to_owned()
    } else {
        value.to_string()
    }
}

pub(super) fn locked_memory(limits: &str) -> Check {
    const NAME: &str = "locked memory limit";
    let found = limit(limits, "Max locked memory").map_or("unknown".to_owned(), |(soft, _)| {
        if soft == u64::MAX {
            limit_text(soft)
        } else {
            crate::text::bytes(soft)
        }
    });
    // Kernels that count map memory against it are older than the oldest that heaptrace supports.
    Check::ok(NAME, format!("{found}, does not matter since Linux 5.11"))
}

pub(super) fn open_files(limits: &str) -> Check {
    const NAME: &str = "open files limit";
    /// Probes on the libc of some dozen containers.
    const ENOUGH: u64 = 1024;
    match limit(limits, "Max open files") {
        None => Check::warn(NAME, "unknown", "mount /proc: heaptrace reads it"),
        Some((soft, hard)) => {
            let found = format!("{} (at most {})", limit_text(soft), limit_text(hard));
            if soft >= ENOUGH {
                Check::ok(NAME, found)
            } else {
                Check::warn(
                    NAME,
                    found,
                    "each probe takes a file: raise it for --all (ulimit -n 4096)",
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// Check the columns of `/proc/self/limits`, whose names have blanks in them.
    #[test]
    fn limits() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            256                  524288               files     \n\
                    Max locked memory         8388608              unlimited            bytes     \n";
        assert_eq!(limit(text, "Max open files"), Some((256, 524_288)));
        assert_eq!(
            limit(text, "Max locked memory"),
            Some((8_388_608, u64::MAX))
        );
        assert_eq!(limit(text, "Max cpu time"), None);
        assert_eq!(limit("Max open files many 3", "Max open files"), None);
        assert_eq!(open_files(text).verdict, Verdict::Warn);
        assert!(open_files(text).advice.contains("ulimit"));
        assert_eq!(locked_memory(text).verdict, Verdict::Ok);
        assert!(locked_memory(text).found.starts_with("8.0 MiB"));
    }

    /// Check that a container's namespaces are told from the machine's.
    #[test]
    fn namespaces() {
        assert_eq!(pid_namespace(Some("pid:[4026531836]")).verdict, Verdict::Ok);
        assert_eq!(
            pid_namespace(Some("pid:[4026532201]")).verdict,
            Verdict::NotOk
        );
        assert_eq!(
            user_namespace(Some("         0          0 4294967295\n")).verdict,
            Verdict::Ok
        );
        assert_eq!(
            user_namespace(Some("         0     100000      65536\n")).verdict,
            Verdict::NotOk
        );
    }

    /// Check that rights decide, and that the advice for missing ones is the command that grants them.
    #[test]
    fn rights() {
        let root = Capabilities::parse("CapEff:\t000001ffffffffff\n").unwrap();
        let nobody = Capabilities::default();
        assert_eq!(capabilities_required(root, true).verdict, Verdict::Ok);
        assert_eq!(capabilities_required(nobody, true).verdict, Verdict::NotOk);
        assert!(
            capabilities_required(nobody, true)
                .advice
                .contains("sudo setcap")
        );
        assert_eq!(capabilities_useful(nobody).verdict, Verdict::Warn);
        assert_eq!(paranoid(Some("3\n"), root).verdict, Verdict::Ok);
        assert_eq!(paranoid(Some("3\n"), nobody).verdict, Verdict::Warn);
        assert_eq!(paranoid(None, root).verdict, Verdict::NotOk);
    }
}
