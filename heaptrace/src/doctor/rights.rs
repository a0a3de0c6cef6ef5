//! Checks of the rights of this process: capabilities, namespaces and limits.
//!
//! Part of `doctor`. Pure functions of texts from `/proc`. The kernel's abilities are checked in `kernel.rs`.

use super::capabilities::{
    self, Capabilities, Capability, NAMESPACE_ADVICE, is_initial_user_namespace, is_perf_restricted,
};
use super::check::Check;

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
    const NAME: &str = "useful capabilities";
    let missing = granted.lacking(&Capability::USEFUL);
    if missing.is_empty() {
        Check::ok(NAME, names(&Capability::USEFUL))
    } else {
        Check::warn(
            NAME,
            format!("without {}", names(&missing)),
            "without CAP_SYS_NICE events may be lost on a busy machine; without CAP_IPC_LOCK a second run may find no memory \
             for its rings; sudo gives both",
        )
    }
}

pub(super) fn user_namespace(uid_map: Option<&str>) -> Check {
    const NAME: &str = "user namespace";
    match uid_map {
        None => Check::ok(NAME, "this kernel has none"),
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
        None => Check::warn(NAME, "unknown", "mount /proc, because heaptrace reads it"),
        Some(_) => Check::not_ok(
            NAME,
            "a container's: process ids here differ from the kernel's",
            "run heaptrace outside the container, or in one that shares the host's pid namespace (docker run --pid=host)",
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
        Some(level) if !granted.allows(Capability::Perfmon) => Check::warn(
            NAME,
            format!("{level}, without CAP_PERFMON"),
            "see capabilities above",
        ),
        Some(level) if is_perf_restricted(Some(level)) && !granted.allows(Capability::SysAdmin) => {
            Check::warn(
                NAME,
                format!(
                    "{level}, without CAP_SYS_ADMIN, which kernels of Debian and Ubuntu need above 2"
                ),
                format!(
                    "lower it:                 sudo sysctl kernel.perf_event_paranoid=2\n{}",
                    capabilities::grant(&capabilities::executable())
                ),
            )
        }
        Some(level) => Check::ok(
            NAME,
            format!("{level}, does not matter with these capabilities"),
        ),
    }
}

/// Soft and hard value of a limit in the text of `/proc/PID/limits`. `u64::MAX` means unlimited.
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
    // Kernels that count the memory of maps against this limit are older than the oldest supported one.
    Check::ok(NAME, format!("{found}, does not matter since Linux 5.11"))
}

pub(super) fn open_files(limits: &str) -> Check {
    const NAME: &str = "open files limit";
    /// Enough for probes on the C libraries of some dozen containers.
    const ENOUGH: u64 = 1024;
    match limit(limits, "Max open files") {
        None => Check::warn(NAME, "unknown", "mount /proc, because heaptrace reads it"),
        Some((soft, hard)) => {
            let found = format!("{} (at most {})", limit_text(soft), limit_text(hard));
            if soft >= ENOUGH {
                Check::ok(NAME, found)
            } else {
                Check::warn(
                    NAME,
                    found,
                    "each probe needs open files: raise the limit for --all (ulimit -n 4096)",
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    /// Check that the columns of `/proc/self/limits` are read, although its names contain blanks.
    #[test]
    fn limits_are_read() {
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

    /// Check that a container's namespaces are distinguished from the machine's.
    #[test]
    fn namespaces_of_containers_are_refused() {
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

    /// Check that capabilities decide the verdict, and that the advice for missing ones is the command that grants them.
    #[test]
    fn missing_rights_come_with_the_command() {
        let root = Capabilities::parse("CapEff:\t000001ffffffffff\n").unwrap();
        let none = Capabilities::default();
        assert_eq!(capabilities_required(root, true).verdict, Verdict::Ok);
        assert_eq!(capabilities_required(none, true).verdict, Verdict::NotOk);
        assert!(
            capabilities_required(none, true)
                .advice
                .contains("sudo setcap")
        );
        assert_eq!(capabilities_useful(none).verdict, Verdict::Warn);
        assert_eq!(paranoid(Some("3\n"), root).verdict, Verdict::Ok);
        assert_eq!(paranoid(Some("3\n"), none).verdict, Verdict::Warn);
        assert_eq!(paranoid(None, root).verdict, Verdict::NotOk);
        let perfmon = Capabilities::parse("CapEff:\t0000004000000000\n").unwrap();
        assert_eq!(paranoid(Some("2\n"), perfmon).verdict, Verdict::Ok);
        let restricted = paranoid(Some("3\n"), perfmon);
        assert_eq!(restricted.verdict, Verdict::Warn);
        assert!(restricted.advice.contains("perf_event_paranoid=2"));
    }
}
