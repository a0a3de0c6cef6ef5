//! What this machine's kernel and these rights allow: the checks of `heaptrace doctor`.
//!
//! Stage: probes. Each check is a pure function of what the kernel says of itself; [`examine`] asks
//! the kernel. Changes nothing that outlasts the process, and knows nothing of how checks are shown.

use std::fs;
use std::io;

use aya::maps::MapType;
use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported, is_map_supported};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::capabilities::{
    self, Capabilities, Capability, NAMESPACE_ADVICE, is_initial_user_namespace,
};

/// The oldest kernel that heaptrace works on: the first one with `bpf_loop`.
pub const MINIMUM_KERNEL: (u32, u32) = (5, 17);
/// The oldest kernel that heaptrace is tested on.
pub const RECOMMENDED_KERNEL: (u32, u32) = (6, 1);

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

/// Looks at this machine.
pub fn examine() -> Vec<Check> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let status = read("/proc/self/status").unwrap_or_default();
    let granted = Capabilities::parse(&status).unwrap_or_default();
    let limits = read("/proc/self/limits").unwrap_or_default();
    let mut checks = vec![
        architecture(std::env::consts::ARCH),
        kernel(&read("/proc/sys/kernel/osrelease").unwrap_or_default()),
        capabilities_required(granted),
        capabilities_useful(granted),
        user_namespace(read("/proc/self/uid_map").as_deref()),
        pid_namespace(
            fs::read_link("/proc/self/ns/pid")
                .ok()
                .and_then(|link| link.into_os_string().into_string().ok())
                .as_deref(),
        ),
        lockdown(read("/sys/kernel/security/lockdown").as_deref()),
        btf(fs::metadata("/sys/kernel/btf/vmlinux").is_ok()),
    ];
    checks.extend(bpf());
    checks.extend([
        uprobes(read("/sys/bus/event_source/devices/uprobe/type").is_some()),
        tracefs(&find_uprobe_events()),
        paranoid(
            read("/proc/sys/kernel/perf_event_paranoid").as_deref(),
            granted,
        ),
        locked_memory(&limits),
        open_files(&limits),
    ]);
    checks
}

fn architecture(arch: &str) -> Check {
    const NAME: &str = "architecture";
    if arch == "x86_64" {
        Check::ok(NAME, arch)
    } else {
        Check::not_ok(NAME, arch, "heaptrace knows x86_64 only, so far")
    }
}

/// Major and minor version in a kernel release such as `6.1.0-13-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(release: &str) -> Check {
    const NAME: &str = "kernel version";
    let found = format!("Linux {}", release.trim());
    let (least, tested) = (MINIMUM_KERNEL, RECOMMENDED_KERNEL);
    match version(release) {
        None => Check::warn(
            NAME,
            found,
            format!("not understood; at least {}.{} is needed", least.0, least.1),
        ),
        Some(version) if version < least => Check::not_ok(
            NAME,
            found,
            format!(
                "needs Linux {}.{} (bpf_loop), better {}.{} or later: install a newer kernel",
                least.0, least.1, tested.0, tested.1
            ),
        ),
        Some(version) if version < tested => Check::warn(
            NAME,
            found,
            format!("may work; tested from Linux {}.{} on", tested.0, tested.1),
        ),
        Some(_) => Check::ok(NAME, found),
    }
}

fn names(capabilities: &[Capability]) -> String {
    let names: Vec<_> = capabilities.iter().map(|c| c.name()).collect();
    names.join(", ")
}

fn capabilities_required(granted: Capabilities) -> Check {
    const NAME: &str = "capabilities";
    let missing = granted.lacking(&Capability::REQUIRED);
    if missing.is_empty() {
        Check::ok(NAME, names(&Capability::REQUIRED))
    } else {
        Check::not_ok(
            NAME,
            format!("without {}", names(&missing)),
            capabilities::grant(&capabilities::executable()),
        )
    }
}

fn capabilities_useful(granted: Capabilities) -> Check {
    const NAME: &str = "other users' processes";
    let missing = granted.lacking(&Capability::USEFUL);
    if missing.is_empty() {
        Check::ok(NAME, names(&Capability::USEFUL))
    } else {
        Check::warn(
            NAME,
            format!("without {}", names(&missing)),
            "processes of other users may stay without names, or be refused; sudo gives these rights, too",
        )
    }
}

fn user_namespace(uid_map: Option<&str>) -> Check {
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

fn pid_namespace(link: Option<&str>) -> Check {
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

fn lockdown(text: Option<&str>) -> Check {
    const NAME: &str = "kernel lockdown";
    // The chosen mode stands in brackets: `none [integrity] confidentiality`.
    let mode = text.and_then(|text| {
        let (_, rest) = text.split_once('[')?;
        rest.split_once(']').map(|(mode, _)| mode)
    });
    match (text, mode) {
        (None, _) => Check::ok(NAME, "none"),
        (_, Some("confidentiality")) => Check::not_ok(
            NAME,
            "confidentiality: BPF programs may not read memory",
            "boot with lockdown=integrity or without lockdown (often tied to Secure Boot)",
        ),
        (_, Some(mode @ ("none" | "integrity"))) => Check::ok(NAME, mode),
        (Some(text), _) => Check::warn(
            NAME,
            format!("{:?}", text.trim()),
            "not understood; confidentiality would stop heaptrace",
        ),
    }
}

fn btf(there: bool) -> Check {
    const NAME: &str = "kernel types (BTF)";
    if there {
        Check::ok(NAME, "/sys/kernel/btf/vmlinux")
    } else {
        Check::not_ok(
            NAME,
            "no /sys/kernel/btf/vmlinux",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions build theirs; is /sys mounted?",
        )
    }
}

/// Whether BPF works at all, and has what the kernel program uses, by trying.
fn bpf() -> [Check; 4] {
    let map = |kind| is_map_supported(kind).map_err(|error| with_causes(&error));
    let helper = |helper| {
        is_helper_supported(ProgramType::KProbe, helper).map_err(|error| with_causes(&error))
    };
    [
        supported("bpf system call", map(MapType::Array), "CONFIG_BPF_SYSCALL"),
        supported("bpf ring buffer", map(MapType::RingBuf), "Linux 5.8"),
        supported(
            "uprobe cookies",
            helper(BpfHelper::BPF_FUNC_get_attach_cookie),
            "Linux 5.15",
        ),
        supported("bpf_loop", helper(BpfHelper::BPF_FUNC_loop), "Linux 5.17"),
    ]
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

fn supported(name: &'static str, answer: Result<bool, String>, needs: &str) -> Check {
    match answer {
        Ok(true) => Check::ok(name, "works"),
        Ok(false) => Check::not_ok(
            name,
            "not in this kernel",
            format!("needs {needs}: use a newer kernel"),
        ),
        Err(error) => Check::not_ok(
            name,
            error,
            "see capabilities above; in a container, seccomp may forbid it, too (docker run --privileged)",
        ),
    }
}

fn uprobes(there: bool) -> Check {
    const NAME: &str = "uprobes";
    if there {
        Check::ok(NAME, "/sys/bus/event_source/devices/uprobe")
    } else {
        Check::not_ok(
            NAME,
            "no /sys/bus/event_source/devices/uprobe",
            "use a kernel built with CONFIG_UPROBE_EVENTS=y; is /sys mounted?",
        )
    }
}

/// Where `uprobe_events` can be reached.
#[derive(Debug)]
enum Tracefs {
    /// At this path, for everybody.
    Mounted(&'static str),
    /// In a mount of heaptrace's own, which nobody else sees.
    Private,
    /// Nowhere.
    Unreachable(io::Error),
}

fn find_uprobe_events() -> Tracefs {
    for folder in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        if fs::metadata(format!("{folder}/uprobe_events")).is_ok() {
            return Tracefs::Mounted(folder);
        }
    }
    match mount_privately() {
        Ok(()) => Tracefs::Private,
        Err(error) => Tracefs::Unreachable(error.into()),
    }
}

/// Opens a tracefs that is attached to no folder, and goes when it is closed.
fn mount_privately() -> rustix::io::Result<()> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let root = rustix::mount::fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )?;
    rustix::fs::openat(
        &root,
        "uprobe_events",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    Ok(())
}

fn tracefs(found: &Tracefs) -> Check {
    const NAME: &str = "tracefs";
    match found {
        Tracefs::Mounted(folder) => Check::ok(NAME, *folder),
        Tracefs::Private => Check::ok(NAME, "not mounted; heaptrace opens its own"),
        Tracefs::Unreachable(error) => Check::not_ok(
            NAME,
            format!("not reachable: {error}"),
            "see capabilities above, or mount it: sudo mount -t tracefs tracefs /sys/kernel/tracing",
        ),
    }
}

fn paranoid(text: Option<&str>, granted: Capabilities) -> Check {
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

fn locked_memory(limits: &str) -> Check {
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

fn open_files(limits: &str) -> Check {
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
    use super::*;

    /// Check the versions around both thresholds, with the suffixes that distributions add.
    #[test]
    fn kernel_versions() {
        for (release, verdict) in [
            ("6.18.44-custom", Verdict::Ok),
            ("6.1.0-13-amd64\n", Verdict::Ok),
            ("10.0-rc1", Verdict::Ok),
            ("6.0.19", Verdict::Warn),
            ("5.17.0", Verdict::Warn),
            ("5.16.20", Verdict::NotOk),
            ("4.18.0-553.el8_10.x86_64", Verdict::NotOk),
            ("", Verdict::Warn),
            ("next", Verdict::Warn),
        ] {
            assert_eq!(kernel(release).verdict, verdict, "{release:?}");
        }
        assert!(kernel("5.4.0").advice.contains("5.17"));
    }

    /// Check that the mode in brackets is read, not the last or first one.
    #[test]
    fn lockdown_modes() {
        assert_eq!(lockdown(None).verdict, Verdict::Ok);
        assert_eq!(
            lockdown(Some("[none] integrity confidentiality\n")).found,
            "none"
        );
        assert_eq!(
            lockdown(Some("none [integrity] confidentiality\n")).verdict,
            Verdict::Ok
        );
        assert_eq!(
            lockdown(Some("none integrity [confidentiality]\n")).verdict,
            Verdict::NotOk
        );
        assert_eq!(lockdown(Some("none integrity")).verdict, Verdict::Warn);
        assert_eq!(lockdown(Some("[none")).verdict, Verdict::Warn);
    }

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
        assert_eq!(capabilities_required(root).verdict, Verdict::Ok);
        assert_eq!(capabilities_required(nobody).verdict, Verdict::NotOk);
        assert!(capabilities_required(nobody).advice.contains("sudo setcap"));
        assert_eq!(capabilities_useful(nobody).verdict, Verdict::Warn);
        assert_eq!(paranoid(Some("3\n"), root).verdict, Verdict::Ok);
        assert_eq!(paranoid(Some("3\n"), nobody).verdict, Verdict::Warn);
        assert_eq!(paranoid(None, root).verdict, Verdict::NotOk);
    }

    /// Check that what the kernel refuses to answer counts as not working, with its reason.
    #[test]
    fn refused_questions() {
        let refused = supported("bpf", Err("`bpf_map_create` failed: denied".into()), "x");
        assert_eq!(refused.verdict, Verdict::NotOk);
        assert!(refused.found.contains("denied"));
        assert_eq!(
            supported("bpf", Ok(false), "Linux 5.8").verdict,
            Verdict::NotOk
        );
        let denied = Tracefs::Unreachable(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(tracefs(&denied).verdict, Verdict::NotOk);
        assert_eq!(tracefs(&Tracefs::Private).verdict, Verdict::Ok);
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
