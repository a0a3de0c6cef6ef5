//! Restriction of capabilities, users, new privileges, core dumps and resources.
//!
//! No stage of the flow. Capabilities and user ids belong to threads, so a process must give them up before it starts
//! other threads.

use std::io;

use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The highest number that a capability of a later kernel may have.
const MAX_CAPABILITY: u32 = 63;

/// Capabilities that a thread keeps.
pub type Kept = CapabilitySet;

/// Limits of resources that a process can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of private memory; mapped files do not count.
    pub memory: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

/// Prevents programs that this thread starts from getting more rights than the thread has (setuid, file capabilities).
pub fn no_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Gives up all capabilities of this thread except the given ones. A process that it starts does not get them back
/// either, unless it changes its user or runs a program with file capabilities.
pub fn keep(kept: Kept) -> io::Result<()> {
    bound(kept)?;
    let own = rustix::thread::capabilities(None)?;
    // An error means that the kernel has no ambient set, so there is nothing to clear.
    let _ = rustix::thread::clear_ambient_capability_set();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: own.effective & kept,
            permitted: own.permitted & kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// Prevents this thread, and each process that it starts, from gaining other capabilities than these. The thread keeps
/// the capabilities that it has.
pub fn bound(kept: Kept) -> io::Result<()> {
    let own = rustix::thread::capabilities(None)?;
    // The kernel requires this capability to shrink the bounding set. A thread without it can't gain capabilities by the
    // bounding set either.
    if own.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..=MAX_CAPABILITY {
            let one = CapabilitySet::from_bits_retain(1 << number);
            if kept.contains(one) {
                continue;
            }
            match rustix::thread::remove_capability_from_bounding_set(one) {
                // The kernel has no capability of this number, nor of higher ones.
                Err(rustix::io::Errno::INVAL) => break,
                result => result?,
            }
        }
    }
    Ok(())
}

/// Disables core dumps, and access to this process's memory by processes that have no right to trace every process.
pub fn undumpable() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Limits memory and descriptors, and prevents this process from writing to files.
pub fn limit(limits: Limits) -> io::Result<()> {
    for (resource, most) in [
        (Resource::Data, limits.memory),
        (Resource::Nofile, limits.descriptors),
        (Resource::Fsize, 0),
    ] {
        let current = rustix::process::getrlimit(resource);
        let most = current.maximum.map_or(most, |hard| hard.min(most));
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit)?;
    }
    Ok(())
}

/// Changes to a user that owns no files, without any group. Best effort: only root can do this.
pub fn become_nobody() {
    /// The kernel's overflow id, which it shows for users that have no id in a namespace.
    const NOBODY: u32 = 65534;
    become_user(NOBODY, NOBODY);
}

/// Changes this thread to a user with one group. Best effort: only root can do this.
pub fn become_user(uid: u32, gid: u32) {
    let (uid, gid) = (Uid::from_raw_unchecked(uid), Gid::from_raw_unchecked(gid));
    let _ = set_thread_groups(&[]);
    let _ = set_thread_res_gid(gid, gid, gid);
    let _ = set_thread_res_uid(uid, uid, uid);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a thread that gave up all capabilities except one has at most that one, and can't get others back.
    #[test]
    fn given_up_capabilities_do_not_come_back() {
        std::thread::spawn(|| {
            let one = CapabilitySet::SYS_PTRACE;
            keep(one).unwrap();
            let now = rustix::thread::capabilities(None).unwrap();
            assert!(one.contains(now.effective | now.permitted | now.inheritable));
            let all = CapabilitySets {
                effective: CapabilitySet::CHOWN,
                permitted: CapabilitySet::CHOWN,
                inheritable: CapabilitySet::empty(),
            };
            assert!(rustix::thread::set_capabilities(None, all).is_err());
        })
        .join()
        .unwrap();
    }
}
