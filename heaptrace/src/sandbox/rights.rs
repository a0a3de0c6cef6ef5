//! Capabilities, new privileges, dumps and resources that a process gives up.
//!
//! No stage of the flow. Capabilities belong to threads: whoever gives them up does so before it starts any.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The highest number that a capability of a later kernel may have.
const MOST: u32 = 63;

/// Capabilities that a thread keeps.
pub type Kept = CapabilitySet;

/// What a process can take from now on, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory of its own; what it maps of files does not count.
    pub memory: u64,
    /// Descriptors.
    pub descriptors: u64,
}

/// Gives up that a program which this thread starts has more rights than it has itself (setuid, file capabilities).
pub fn no_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Gives up all capabilities of this thread but some, for good: what it starts does not get them back either, unless by
/// a change of user or a program that has some of its own.
pub fn keep(kept: Kept) -> io::Result<()> {
    bound(kept)?;
    let own = rustix::thread::capabilities(None)?;
    // A kernel that does not have the ambient set has nothing in it.
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

/// Gives up that this thread, or what it starts, ever has other capabilities than these anew; those that it has stay.
pub fn bound(kept: Kept) -> io::Result<()> {
    let own = rustix::thread::capabilities(None)?;
    // Only who has this one can shrink the bounding set; who has not can't grow by it either.
    if own.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..=MOST {
            let one = CapabilitySet::from_bits_retain(1 << number);
            if kept.contains(one) {
                continue;
            }
            match rustix::thread::remove_capability_from_bounding_set(one) {
                // The kernel knows no more of them.
                Err(rustix::io::Errno::INVAL) => break,
                result => result?,
            }
        }
    }
    Ok(())
}

/// Gives up core dumps: nobody without the right to trace everything can read this process's memory.
pub fn undumpable() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Gives up the right to take more than this, to write files, and to start processes.
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

/// Becomes a user who owns nothing, without any group. Best effort: only root can.
pub fn become_nobody() {
    /// The kernel's overflow id, by which it shows users that have none.
    const NOBODY: u32 = 65534;
    become_user(NOBODY, NOBODY);
}

/// Becomes a user with one group. Best effort: only root can.
pub fn become_user(uid: u32, gid: u32) {
    // SAFETY: no memory is touched; an empty list of groups needs no pointer.
    unsafe {
        libc::setgroups(0, std::ptr::null());
        libc::setresgid(gid, gid, gid);
        libc::setresuid(uid, uid, uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a thread that gave up all but one capability has at most that one, and can't get others back.
    #[test]
    fn capabilities_are_gone() {
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
