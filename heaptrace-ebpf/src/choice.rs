//! Which processes are to be traced, of all that the probes reach.
//!
//! Asked once for a process record, and remembered: what is not wanted costs its trap and a lookup.

use aya_ebpf::helpers::{bpf_get_current_uid_gid, generated::bpf_get_current_ancestor_cgroup_id};
use heaptrace_common::{limits::MAX_CGROUP_LEVELS, wire::choice};

use crate::{
    globals::{CHOICES, GUARDIAN_TGID},
    maps::{CHOSEN_CGROUPS, CHOSEN_NAMES, CHOSEN_USERS},
    process,
};

/// Whether the current process is to be traced. A function of its own, so that its stack is not its caller's, too:
/// there are 512 bytes for all that call each other.
#[inline(never)]
pub fn is_wanted(tgid: u32) -> bool {
    // Nor are the processes that read files for the agent, nor itself, but nobody asks about that: see `Caller`.
    if tgid == GUARDIAN_TGID.load() || process::is_agents_child() {
        return false;
    }
    let asked = CHOICES.load();
    (asked & choice::USER == 0 || is_users(user()))
        && (asked & (choice::NAME | choice::EXCLUDE) == 0 || is_named(asked))
        && (asked & choice::CGROUP == 0 || is_in_cgroup())
}

/// Whether it may be to be traced now, although it was not to be as another user's process.
#[inline(always)]
pub fn may_have_changed(user_then: u32) -> bool {
    CHOICES.load() & choice::USER != 0 && user() != user_then
}

/// The real user of the current process.
#[inline(always)]
pub fn user() -> u32 {
    bpf_get_current_uid_gid() as u32
}

#[inline(always)]
fn is_users(user: u32) -> bool {
    // SAFETY: the value is not looked at.
    unsafe { CHOSEN_USERS.get(user) }.is_some()
}

/// By the name of the process, which is its first thread's: whichever thread comes here first.
#[inline(always)]
fn is_named(asked: u32) -> bool {
    let Some(names) = CHOSEN_NAMES.get(0) else {
        return false;
    };
    let name = process::name();
    (asked & choice::NAME == 0 || names.include.matches(&name))
        && (asked & choice::EXCLUDE == 0 || !names.exclude.matches(&name))
}

/// Whether its control group, or one above, is chosen.
#[inline(always)]
fn is_in_cgroup() -> bool {
    for level in 0..MAX_CGROUP_LEVELS {
        // SAFETY: the helper has no preconditions.
        let id = unsafe { bpf_get_current_ancestor_cgroup_id(level as i32) };
        if id == 0 {
            return false;
        }
        // SAFETY: the value is not looked at.
        if unsafe { CHOSEN_CGROUPS.get(id) }.is_some() {
            return true;
        }
    }
    false
}
