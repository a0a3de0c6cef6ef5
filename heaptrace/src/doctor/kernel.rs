//! Checks of the kernel's abilities.
//!
//! Part of `doctor`. Each check is a pure function of a text from the kernel, or tries something and leaves nothing
//! behind. The rights of this process are checked in `rights.rs`.

use std::fs;
use std::io;

use aya::maps::MapType;
use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported, is_map_supported};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::check::Check;
use crate::kernel::version;

pub(super) fn architecture(arch: &str) -> Check {
    const NAME: &str = "architecture";
    if arch == "x86_64" {
        Check::ok(NAME, arch)
    } else {
        Check::not_ok(NAME, arch, "heaptrace supports x86_64 only")
    }
}

pub(super) fn kernel(release: &str) -> Check {
    const NAME: &str = "kernel version";
    let found = format!("Linux {}", release.trim());
    let (least, tested) = (version::MINIMUM, version::RECOMMENDED);
    match version::parse(release) {
        None => Check::warn(
            NAME,
            found,
            format!(
                "unknown version; at least {}.{} is needed",
                least.0, least.1
            ),
        ),
        Some(version) if version < least => Check::not_ok(
            NAME,
            found,
            format!(
                "needs Linux {}.{} or later (bpf_loop), better {}.{} or later: install a newer kernel",
                least.0, least.1, tested.0, tested.1
            ),
        ),
        Some(version) if version < tested => Check::warn(
            NAME,
            found,
            format!(
                "may work; heaptrace is tested on Linux {}.{} and later",
                tested.0, tested.1
            ),
        ),
        Some(_) => Check::ok(NAME, found),
    }
}

pub(super) fn lockdown(text: Option<&str>) -> Check {
    const NAME: &str = "kernel lockdown";
    // The active mode is in brackets: `none [integrity] confidentiality`.
    let mode = text.and_then(|text| {
        let (_, rest) = text.split_once('[')?;
        rest.split_once(']').map(|(mode, _)| mode)
    });
    match (text, mode) {
        (None, _) => Check::ok(NAME, "none"),
        (_, Some("confidentiality")) => Check::not_ok(
            NAME,
            "confidentiality: BPF programs may not read memory",
            "boot with lockdown=integrity or without lockdown (Secure Boot often enables it)",
        ),
        (_, Some(mode @ ("none" | "integrity"))) => Check::ok(NAME, mode),
        (Some(text), _) => Check::warn(
            NAME,
            format!("{:?}", text.trim()),
            "unknown mode; heaptrace does not work with `confidentiality`",
        ),
    }
}

pub(super) fn btf(there: bool) -> Check {
    const NAME: &str = "kernel types (BTF)";
    if there {
        Check::ok(NAME, "/sys/kernel/btf/vmlinux")
    } else {
        Check::not_ok(
            NAME,
            "no /sys/kernel/btf/vmlinux",
            "check that /sys is mounted; otherwise use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions build theirs",
        )
    }
}

/// Tries whether BPF works and has the features that the kernel program uses.
pub(super) fn bpf() -> [Check; 4] {
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
            "see capabilities above; in a container, seccomp may forbid it as well (docker run --privileged)",
        ),
    }
}

pub(super) fn uprobes(there: bool) -> Check {
    const NAME: &str = "uprobes";
    if there {
        Check::ok(NAME, "/sys/bus/event_source/devices/uprobe")
    } else {
        Check::not_ok(
            NAME,
            "no /sys/bus/event_source/devices/uprobe",
            "check that /sys is mounted; otherwise use a kernel built with CONFIG_UPROBE_EVENTS=y",
        )
    }
}

/// The place where `uprobe_events` can be reached.
#[derive(Debug)]
pub(super) enum Tracefs {
    /// At this path, for every process.
    Mounted(&'static str),
    /// In a mount of heaptrace's own, which no other process sees.
    Private,
    /// Nowhere.
    Unreachable(io::Error),
}

pub(super) fn find_uprobe_events() -> Tracefs {
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

/// Mounts a tracefs without attaching it to a folder. The kernel removes it when it is closed.
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

pub(super) fn tracefs(found: &Tracefs) -> Check {
    const NAME: &str = "tracefs";
    match found {
        Tracefs::Mounted(folder) => Check::ok(NAME, *folder),
        Tracefs::Private => Check::ok(NAME, "not mounted; heaptrace mounts its own"),
        Tracefs::Unreachable(error) => Check::not_ok(
            NAME,
            format!("not reachable: {error}"),
            "see capabilities above, or mount it: sudo mount -t tracefs tracefs /sys/kernel/tracing",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    /// Check that versions around both thresholds get the right verdict, with the suffixes that distributions add.
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

    /// Check that the mode in brackets is read, not the first or the last one.
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

    /// Check that a refused question to the kernel counts as not working, with the kernel's reason.
    #[test]
    fn refused_questions_count_as_not_ok() {
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
}
