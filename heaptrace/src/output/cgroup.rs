//! Reads the path of a control group: the container, its pod, the systemd unit and its slice.
//!
//! Stage: output. A pure function from a path to names, by the conventions of container runtimes and systemd.
//! A process can be in a group of any name, so the result is a claim and no proof.

/// The names in a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CgroupNames {
    /// The innermost container.
    pub(super) container: Option<Container>,
    /// The Kubernetes pod of that container.
    pub(super) pod: Option<String>,
    /// The innermost systemd unit: a service, a scope, …
    pub(super) unit: Option<String>,
    /// The slice that the unit is in.
    pub(super) slice: Option<String>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Container {
    /// The container runtime: `docker`, `podman`, …
    pub(super) runtime: &'static str,
    /// Its id, or its name if the runtime has no ids.
    pub(super) id: String,
}

/// The number of characters of a short id.
const SHORT: usize = 12;

/// The suffixes of systemd units that processes can be in.
const UNITS: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".swap"];

/// The prefix of the id in a scope's name, and the runtime that uses it. Container monitors have scopes of
/// their own, which don't belong to a container.
const SCOPES: [(&str, &str); 8] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("containerd-", "containerd"),
    ("nerdctl-", "containerd"),
    ("crio-", "cri-o"),
    ("cri-o-", "cri-o"),
    ("libpod-", "podman"),
    ("libpod-payload-", "podman"),
];

/// The prefixes of an LXC container's name, in the name of a group.
const LXC: [&str; 2] = ["lxc.payload.", "lxc.payload-"];

impl CgroupNames {
    /// Reads the names in a path.
    pub(super) fn of(path: &str) -> Self {
        let mut names = Self::default();
        let mut above = "";
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if let Some(container) = container(part, above, names.pod.is_some()) {
                names.container = Some(container);
            }
            if let Some(pod) = pod(part) {
                names.pod = Some(pod);
            }
            if part.ends_with(".slice") {
                names.slice = Some(unescaped(part));
                // A slice below a unit is not a part of that unit.
                names.unit = None;
            } else if UNITS.iter().any(|end| part.ends_with(end)) {
                names.unit = Some(unescaped(part));
            }
            above = part;
        }
        names
    }
}

impl Container {
    /// The short form of the id.
    pub(super) fn short(&self) -> &str {
        if is_id(&self.id) {
            &self.id[..SHORT]
        } else {
            &self.id
        }
    }
}

/// The container of a group, by the group's name, the name of its parent, and whether it is in a pod.
fn container(part: &str, above: &str, in_pod: bool) -> Option<Container> {
    let is = |runtime, id: &str| {
        Some(Container {
            runtime,
            id: unescaped(id),
        })
    };
    // A runtime that writes systemd's names without systemd: `slice:prefix:id`.
    if let Some((_, rest)) = part.split_once(':')
        && let Some((prefix, id)) = rest.rsplit_once(':')
        && is_id(id)
    {
        let scope = SCOPES
            .iter()
            .find(|(name, _)| name.trim_end_matches('-') == prefix);
        return is(scope.map_or("container", |(_, runtime)| runtime), id);
    }
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    for (prefix, runtime) in SCOPES {
        if let Some(id) = scope.strip_prefix(prefix)
            && is_id(id)
        {
            return is(runtime, id);
        }
    }
    for prefix in LXC {
        if let Some(name) = part.strip_prefix(prefix) {
            return is("lxc", name);
        }
    }
    if let Some(name) = scope.strip_prefix("machine-")
        && scope.len() < part.len()
    {
        return is("machine", name);
    }
    if let Some(name) = part
        .strip_prefix("systemd-nspawn@")
        .and_then(|name| name.strip_suffix(".service"))
    {
        return is("systemd-nspawn", name);
    }
    match above {
        "lxc" | "lxc.payload" => return is("lxc", part),
        "docker" if is_id(part) => return is("docker", part),
        _ => {}
    }
    if !is_id(part) {
        return None;
    }
    is(if in_pod { "kubernetes" } else { "container" }, part)
}

/// The id of the pod that a group belongs to.
fn pod(part: &str) -> Option<String> {
    let slice = part.split(':').next().unwrap_or(part);
    let name = slice.strip_suffix(".slice").unwrap_or(slice);
    let uid = match name.rsplit_once("-pod") {
        Some((before, uid)) if before.starts_with("kubepods") => uid,
        _ => name.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() >= 32 && uid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    is_uid.then_some(uid)
}

/// Whether a name is a container id: 64 hexadecimal digits.
fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A systemd name with its escapes (`\x2d`) decoded.
fn unescaped(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escape = tail
            .strip_prefix(b"x")
            .filter(|_| *first == b'\\')
            .and_then(|hex| hex.first_chunk::<2>())
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escape {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4d2f8e1a6b7c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f80";
    const OTHER: &str = "00ff8e1a6b7c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f80";
    const UID: &str = "1b7c2f3e-0a4d-4e5f-8a9b-c0d1e2f3a4b5";

    /// Checks the names in a path: runtime, pod, unit, slice. The container's id is `ID`.
    fn check(path: &str, runtime: &str, pod: bool, unit: &str, slice: &str) {
        let filled = |text: &str| {
            let text = text.replace("UID_", &UID.replace('-', "_"));
            text.replace("UID", UID).replace("ID", ID)
        };
        let path = filled(path);
        let found = CgroupNames::of(&path);
        let container = found.container.as_ref();
        assert_eq!(container.map_or("", |it| it.runtime), runtime, "{path}");
        if let Some(container) = container {
            assert_eq!(container.id, ID, "{path}");
            assert_eq!(container.short(), &ID[..12]);
        }
        assert_eq!(found.pod.as_deref(), pod.then_some(UID), "{path}");
        let text = |name: Option<String>| name.unwrap_or_default();
        assert_eq!(text(found.unit), filled(unit), "{path}");
        assert_eq!(text(found.slice), filled(slice), "{path}");
    }

    /// Check that systemd's paths without containers are read.
    #[test]
    fn units() {
        for (path, unit, slice) in [
            ("/", "", ""),
            ("", "", ""),
            ("/init.scope", "init.scope", ""),
            (
                "/system.slice/nginx.service",
                "nginx.service",
                "system.slice",
            ),
            (
                "/system.slice/ssh.service/sub/group",
                "ssh.service",
                "system.slice",
            ),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                "getty@tty1.service",
                "system-getty.slice",
            ),
            ("/system.slice/dbus.socket", "dbus.socket", "system.slice"),
            (
                r"/system.slice/run-user\x2d1.mount",
                "run-user-1.mount",
                "system.slice",
            ),
            (
                "/user.slice/user-1000.slice/session-3.scope",
                "session-3.scope",
                "user-1000.slice",
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/init.scope",
                "init.scope",
                "user-1000.slice",
            ),
            (
                r"/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome\x2dterminal-7.scope",
                "app-gnome-terminal-7.scope",
                "app.slice",
            ),
            ("/user.slice", "", "user.slice"),
            ("/mine/by/hand", "", ""),
        ] {
            check(path, "", false, unit, slice);
        }
    }

    /// Check that the paths of both of Docker's drivers are read, in both versions of control groups.
    #[test]
    fn docker() {
        check("/docker/ID", "docker", false, "", "");
        check("/docker/ID/init", "docker", false, "", "");
        check(
            "/system.slice/docker-ID.scope",
            "docker",
            false,
            "docker-ID.scope",
            "system.slice",
        );
        check(
            "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope",
            "docker",
            false,
            "docker-ID.scope",
            "user.slice",
        );
        // A systemd inside the container.
        check(
            "/docker/ID/system.slice/cron.service",
            "docker",
            false,
            "cron.service",
            "system.slice",
        );
        // A container inside another: the innermost one counts.
        check(
            &format!("/docker/{OTHER}/docker/ID"),
            "docker",
            false,
            "",
            "",
        );
        // Docker's own service is in no container.
        check(
            "/system.slice/docker.service",
            "",
            false,
            "docker.service",
            "system.slice",
        );
    }

    /// Check that Kubernetes' paths are read, for each driver and runtime.
    #[test]
    fn kubernetes() {
        let slice = "kubepods-burstable-podUID_.slice";
        for (scope, runtime) in [
            ("cri-containerd-ID.scope", "containerd"),
            ("crio-ID.scope", "cri-o"),
            ("docker-ID.scope", "docker"),
        ] {
            let path = format!("/kubepods.slice/kubepods-burstable.slice/{slice}/{scope}");
            check(&path, runtime, true, scope, slice);
        }
        check("/kubepods/burstable/podUID/ID", "kubernetes", true, "", "");
        check("/kubepods/podUID/ID", "kubernetes", true, "", "");
        check(
            "/kubelet.slice/kubelet-kubepods.slice/x/podUID/ID",
            "kubernetes",
            true,
            "",
            "kubelet-kubepods.slice",
        );
        check(
            "/system.slice/containerd.service/kubepods-besteffort-podUID_.slice:cri-containerd:ID",
            "containerd",
            true,
            "containerd.service",
            "system.slice",
        );
        // The pod's own group, which has no container.
        check("/kubepods/burstable/podUID", "", true, "", "");
    }

    /// Check that the paths of podman, whose payload has a group of its own, and of other runtimes with ids
    /// are read.
    #[test]
    fn podman_and_others() {
        let scope = "libpod-ID.scope";
        check(
            "/machine.slice/libpod-ID.scope/container",
            "podman",
            false,
            scope,
            "machine.slice",
        );
        check(
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
            "podman",
            false,
            scope,
            "user.slice",
        );
        check("/libpod_parent/libpod-ID", "podman", false, "", "");
        // The monitor of a container is not in the container.
        let monitor = "libpod-conmon-ID.scope";
        check(
            "/machine.slice/libpod-conmon-ID.scope",
            "",
            false,
            monitor,
            "machine.slice",
        );
        check(
            "/system.slice/crio-conmon-ID.scope",
            "",
            false,
            "crio-conmon-ID.scope",
            "system.slice",
        );
        check(
            "/system.slice/nerdctl-ID.scope",
            "containerd",
            false,
            "nerdctl-ID.scope",
            "system.slice",
        );
        check("/default/ID", "container", false, "", "");
        check(
            "/ecs/0123456789abcdef0123456789abcdef/ID",
            "container",
            false,
            "",
            "",
        );
    }

    /// Check that containers with names instead of ids are read.
    #[test]
    fn containers_with_names_are_read() {
        for (path, runtime, name) in [
            ("/lxc/web", "lxc", "web"),
            ("/lxc/web/system.slice/ssh.service", "lxc", "web"),
            ("/lxc.payload/web", "lxc", "web"),
            ("/lxc.payload.web/init.scope", "lxc", "web"),
            (
                r"/machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/emulator",
                "machine",
                "qemu-1-vm",
            ),
            (
                "/machine.slice/systemd-nspawn@deb.service/payload",
                "systemd-nspawn",
                "deb",
            ),
        ] {
            let found = CgroupNames::of(path).container.unwrap();
            assert_eq!(
                (found.runtime, found.id.as_str()),
                (runtime, name),
                "{path}"
            );
            assert_eq!(found.short(), name);
        }
        for path in [
            "/lxc.monitor.web",
            "/lxc",
            "/machine.slice",
            "/lxc.monitor/web",
        ] {
            assert_eq!(CgroupNames::of(path).container, None, "{path}");
        }
    }

    /// Check that malformed paths give a result and no panic.
    #[test]
    fn malformed_paths_are_read() {
        for path in [
            "////",
            r"/a\x",
            r"/\x2",
            r"/\xzz.service",
            r"/\xff.service",
            ":::",
            "/:",
            "/x:y:",
            "/docker-",
            "/pod",
            "/kubepods-pod",
        ] {
            assert_eq!(CgroupNames::of(path).container, None, "{path}");
        }
        CgroupNames::of(&"/docker-".repeat(1 << 16));
        CgroupNames::of(&"é".repeat(64));
    }
}
