//! The owner of a process (a user or a container), for limits per owner.
//!
//! Part of `proc`. Uses only facts from the kernel, and nothing that a process claims about itself. Must not know
//! what is limited.

use std::fmt;
use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// The kernel's requests about namespaces (ioctl_ns(2)).
const NS_GET_PARENT: libc::c_ulong = 0xb702;
const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;

/// The kernel's limit of nested user namespaces.
const MOST_NESTED: usize = 33;

/// Leading folders of a control group's path that distinguish containers. A container may have made deeper ones itself.
const FOLDERS: usize = 4;

/// The owner of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A user other than root. Processes in a user namespace belong to the user that made the namespace.
    User(u32),
    /// The control group of a process that root has started: a service or a container.
    Group(String),
    /// Unknown, because the process had already ended.
    Gone,
}

impl Owner {
    /// Finds the owner of a process.
    pub fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        match user(&status) {
            None => Self::Gone,
            Some(user) => match maker(pid).unwrap_or(user) {
                0 => {
                    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"));
                    Self::Group(group(&groups.unwrap_or_default()))
                }
                user => Self::User(user),
            },
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => write!(f, "user {id}"),
            Self::Group(path) => write!(f, "control group {path}"),
            Self::Gone => f.write_str("processes that have ended"),
        }
    }
}

/// The real user id in the text of `/proc/PID/status`.
fn user(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().next()?.parse().ok()
}

/// The user that made the outermost user namespace of a process, if that is not the agent's own namespace. Inside of it,
/// a process can take any user id that was given to the maker.
fn maker(pid: u32) -> Option<u32> {
    let own = fs::read_link("/proc/self/ns/user").ok()?;
    let link = format!("/proc/{pid}/ns/user");
    if fs::read_link(&link).ok()? == own {
        return None;
    }
    let mut outermost = OwnedFd::from(File::open(link).ok()?);
    for _ in 0..MOST_NESTED {
        // SAFETY: the request takes no argument and yields a new descriptor, or an error.
        let parent = unsafe { libc::ioctl(outermost.as_raw_fd(), NS_GET_PARENT) };
        if parent < 0 {
            break;
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        let parent = unsafe { OwnedFd::from_raw_fd(parent) };
        if fs::read_link(format!("/proc/self/fd/{}", parent.as_raw_fd())).ok()? == own {
            break;
        }
        outermost = parent;
    }
    let mut maker: libc::uid_t = 0;
    // SAFETY: the request writes one user id into the variable.
    let result = unsafe { libc::ioctl(outermost.as_raw_fd(), NS_GET_OWNER_UID, &raw mut maker) };
    (result == 0).then_some(maker)
}

/// The control group in the text of `/proc/PID/cgroup`, shortened to the folders that distinguish containers.
fn group(text: &str) -> String {
    let path = text
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .max_by_key(|path| path.len())
        .unwrap_or("/");
    let folders = path.split('/').filter(|folder| !folder.is_empty());
    let folders: Vec<&str> = folders.take(FOLDERS).collect();
    format!("/{}", folders.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the real user counts, not the effective one of a setuid program.
    #[test]
    fn the_real_user_counts() {
        assert_eq!(user("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(1000));
        assert_eq!(user("Name:\tx\n"), None);
    }

    /// Check that groups inside of a container count as one, and that both versions of control groups are read.
    #[test]
    fn groups_inside_a_container_count_as_one() {
        let docker = "0::/system.slice/docker-12ab.scope\n";
        assert_eq!(group(docker), "/system.slice/docker-12ab.scope");
        let pod =
            |inner| format!("0::/kubepods.slice/burstable.slice/pod1.slice/cri-2.scope/{inner}\n");
        assert_eq!(group(&pod("a")), group(&pod("b")));
        assert_eq!(
            group("4:memory:/docker/12ab\n1:name=systemd:/\n0::/\n"),
            "/docker/12ab"
        );
        assert_eq!(group(""), "/");
    }

    /// Check that a process that doesn't exist has no owner, and that this one has.
    #[test]
    fn missing_processes_have_no_owner() {
        assert_eq!(Owner::of(u32::MAX), Owner::Gone);
        assert_ne!(Owner::of(std::process::id()), Owner::Gone);
    }
}
