//! What a run gives up once it is set up: rights that only its start needed.
//!
//! Part of the session. Files that come while a run goes on are probed, too, so what that takes is kept.

use std::io;

use rustix::process::geteuid;

use crate::sandbox::{Kept, rights};

/// What a run takes: probes and programs (BPF, PERFMON), the files that processes have mapped (CHECKPOINT_RESTORE,
/// SYS_PTRACE, DAC_READ_SEARCH), its ring in time (SYS_NICE), and rings of perf (IPC_LOCK).
const RUNNING: [Kept; 7] = [
    Kept::BPF,
    Kept::PERFMON,
    Kept::CHECKPOINT_RESTORE,
    Kept::SYS_PTRACE,
    Kept::DAC_READ_SEARCH,
    Kept::SYS_NICE,
    Kept::IPC_LOCK,
];

/// What root's runs take beside: output in other users' folders (DAC_OVERRIDE), signals for a command that has become
/// another user (KILL), and readers that are nobody (SETUID, SETGID).
const OF_ROOT: [Kept; 4] = [Kept::DAC_OVERRIDE, Kept::KILL, Kept::SETUID, Kept::SETGID];

/// What root's runs under sudo take: output that is to be the caller's, also in the place of a file of his (FOWNER, where
/// the folder is sticky).
const OF_SUDO: [Kept; 2] = [Kept::CHOWN, Kept::FOWNER];

/// What opening a perf event takes where a distribution's kernel restricts it further than the kernel's own: PERFMON does not
/// do there.
const OF_PERF: Kept = Kept::SYS_ADMIN;

/// Whether this kernel is one of these, and restricts it.
fn is_perf_restricted() -> bool {
    /// The highest level that the kernel's own has.
    const MOST: i32 = 2;
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let level = level
        .ok()
        .and_then(|level| level.trim().parse::<i32>().ok());
    level.is_some_and(|level| level > MOST)
}

/// Gives up everything else, for this thread and all that it starts. The command must have been started before.
pub(super) fn give_up() -> io::Result<()> {
    rights::undumpable()?;
    rights::no_new_privileges()?;
    let of_root = OF_ROOT.into_iter().filter(|_| geteuid().is_root());
    let of_perf = Some(OF_PERF).filter(|_| is_perf_restricted());
    let is_sudo = geteuid().is_root() && std::env::var_os("SUDO_UID").is_some();
    let of_sudo = OF_SUDO.into_iter().filter(|_| is_sudo);
    let kept = RUNNING.into_iter().chain(of_root);
    let kept = kept.chain(of_sudo).chain(of_perf);
    rights::keep(kept.fold(Kept::empty(), |all, one| all | one))
}
