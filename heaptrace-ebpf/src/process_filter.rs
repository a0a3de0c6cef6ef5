//! Which of the processes that the probes reach are recorded.
//!
//! Asked once per process, before its record begins. The answer is kept in the process map, so a process that
//! is not selected costs its trap and a lookup per call.

use aya_ebpf::helpers::{bpf_get_current_uid_gid, generated::bpf_get_current_ancestor_cgroup_id};
use heaptrace_common::{limits::MAX_CGROUP_LEVELS, wire::selection};

use crate::{
    globals::{AGENT_TGID, GUARDIAN_TGID, INSTALLER_TGID, SELECTION},
    kernel,
    maps::{CGROUP_FILTER, NAME_FILTER, USER_FILTER},
};

/// Whether the current process is selected. Not inlined, so that its stack does not add to its caller's: all
/// functions of a chain of calls share 512 bytes.
#[inline(never)]
pub fn is_selected(tgid: u32) -> bool {
    // The agent itself is left out earlier: see `Caller`.
    if tgid == GUARDIAN_TGID.load() || tgid == INSTALLER_TGID.load() || is_helpers_child() {
        return false;
    }
    let criteria = SELECTION.load();
    (criteria & selection::USER == 0 || is_selected_user(user()))
        && (criteria & (selection::NAME | selection::EXCLUDE) == 0 || is_selected_name(criteria))
        && (criteria & selection::CGROUP == 0 || is_in_selected_cgroup())
}

/// Whether a process that was not selected may be selected now, because its user is another one.
#[inline(always)]
pub fn may_have_changed(user_then: u32) -> bool {
    SELECTION.load() & selection::USER != 0 && user() != user_then
}

/// The real user of the current process.
#[inline(always)]
pub fn user() -> u32 {
    bpf_get_current_uid_gid() as u32
}

/// Whether the agent started the current process, which then reads files for it, or the installer did. Only checked under
/// `--all`: otherwise the agent starts the processes that must be traced.
#[inline(always)]
fn is_helpers_child() -> bool {
    let agent = AGENT_TGID.load();
    if agent == 0 {
        return false;
    }
    let (parent, installer) = (kernel::parent_tgid(), INSTALLER_TGID.load());
    parent == agent || installer != 0 && parent == installer
}

#[inline(always)]
fn is_selected_user(user: u32) -> bool {
    // SAFETY: the value is not read.
    unsafe { USER_FILTER.get(user) }.is_some()
}

/// By the name of the process, which is its first thread's, whichever of its threads runs this.
#[inline(always)]
fn is_selected_name(criteria: u32) -> bool {
    let Some(names) = NAME_FILTER.get(0) else {
        return false;
    };
    let name = kernel::process_name();
    (criteria & selection::NAME == 0 || names.include.matches(&name))
        && (criteria & selection::EXCLUDE == 0 || !names.exclude.matches(&name))
}

/// Whether the process's control group, or a group above it, is selected.
#[inline(always)]
fn is_in_selected_cgroup() -> bool {
    for level in 0..MAX_CGROUP_LEVELS {
        // SAFETY: the helper has no preconditions.
        let id = unsafe { bpf_get_current_ancestor_cgroup_id(level as i32) };
        if id == 0 {
            return false;
        }
        // SAFETY: the value is not read.
        if unsafe { CGROUP_FILTER.get(id) }.is_some() {
            return true;
        }
    }
    false
}
