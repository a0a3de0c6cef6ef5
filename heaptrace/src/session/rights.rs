//! Gives up the rights that only the start of a run needs.
//!
//! Part of the session. Late files are probed, too, so the rights for that are kept.

use std::io;

use rustix::process::geteuid;

use crate::doctor::capabilities;
use crate::sandbox::{Kept, rights};

/// The rights of a run: for probes and programs (BPF, PERFMON), for the files that processes have mapped
/// (CHECKPOINT_RESTORE, SYS_PTRACE, DAC_READ_SEARCH), to read the ring in time (SYS_NICE), and for perf rings
/// (IPC_LOCK).
const RUNNING: [Kept; 7] = [
    Kept::BPF,
    Kept::PERFMON,
    Kept::CHECKPOINT_RESTORE,
    Kept::SYS_PTRACE,
    Kept::DAC_READ_SEARCH,
    Kept::SYS_NICE,
    Kept::IPC_LOCK,
];

/// Further rights of root's runs: for output in other users' folders (DAC_OVERRIDE), for signals to a command
/// that runs as another user (KILL), and for readers that run as the user `nobody` (SETUID, SETGID).
const OF_ROOT: [Kept; 4] = [Kept::DAC_OVERRIDE, Kept::KILL, Kept::SETUID, Kept::SETGID];

/// Further rights of runs under sudo: for output that must belong to the caller (CHOWN), also if it replaces
/// a file of the caller in a sticky folder (FOWNER).
const OF_SUDO: [Kept; 2] = [Kept::CHOWN, Kept::FOWNER];

/// The right to open perf events on a distribution's kernel that restricts them further than the upstream
/// kernel: PERFMON is not enough there.
const OF_PERF: Kept = Kept::SYS_ADMIN;

/// Gives up all other rights, for this thread and all that it starts. The command must have been started
/// before.
pub(super) fn give_up() -> io::Result<()> {
    rights::undumpable()?;
    rights::no_new_privileges()?;
    let of_root = OF_ROOT.into_iter().filter(|_| geteuid().is_root());
    let of_perf = Some(OF_PERF).filter(|_| capabilities::is_perf_restricted_here());
    let is_sudo = geteuid().is_root() && std::env::var_os("SUDO_UID").is_some();
    let of_sudo = OF_SUDO.into_iter().filter(|_| is_sudo);
    let kept = RUNNING.into_iter().chain(of_root);
    let kept = kept.chain(of_sudo).chain(of_perf);
    rights::keep(kept.fold(Kept::empty(), |all, one| all | one))
}
