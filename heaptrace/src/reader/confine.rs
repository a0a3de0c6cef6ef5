//! The restrictions of a reader: it keeps only memory, processor time, and the descriptors that it receives.
//!
//! No stage of the flow.

use std::io;

use super::open_handler;
use crate::sandbox::seccomp::{self, Verdict};
use crate::sandbox::{self, Kept, landlock, rights};

/// Most open descriptors: those of the current question, and those of earlier questions that are cached.
const DESCRIPTORS: u64 = 512;

/// Limit of processor time for a whole reader, in seconds. No run needs that much of one reader. The limit ends a reader
/// with endless work whose tracer no longer checks it.
const MAX_SECONDS: u64 = 3600;

/// Confines this process, which must have one thread only.
pub(super) fn confine(memory: u64) -> io::Result<()> {
    // The process that started the tracer may have left descriptors open. rustix has no `close_range`.
    // SAFETY: no object of this process owns a descriptor from 3 on yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    // First, because only a capability that is given up below allows it.
    rights::bound(Kept::empty())?;
    rights::become_nobody();
    rights::no_new_privileges()?;
    rights::keep(Kept::empty())?;
    rights::undumpable()?;
    rights::limit(sandbox::Limits {
        memory,
        descriptors: DESCRIPTORS,
    })?;
    rustix::process::setrlimit(
        rustix::process::Resource::Cpu,
        rustix::process::Rlimit {
            current: Some(MAX_SECONDS),
            maximum: Some(MAX_SECONDS),
        },
    )?;
    // On a kernel without Landlock, the seccomp filter below still refuses every call that opens a file.
    landlock::restrict(&[])?;
    open_handler::install()?;
    let own = [
        libc::SYS_recvmsg,
        libc::SYS_recvfrom,
        libc::SYS_sendmsg,
        libc::SYS_sendto,
        libc::SYS_setitimer,
    ];
    let allowed = seccomp::BASIC.into_iter().chain(own);
    let allowed = allowed.map(|call| (call, Verdict::Allow));
    let answered = open_handler::ANSWERED.map(|call| (call, Verdict::Trap));
    let missing = [
        // The standard library then falls back to older calls.
        (libc::SYS_statx, Verdict::Fail(libc::ENOSYS)),
        // To resolve a path fails, and blazesym then uses the path as it is.
        (libc::SYS_readlink, Verdict::Fail(libc::ENOENT)),
        (libc::SYS_readlinkat, Verdict::Fail(libc::ENOENT)),
    ];
    seccomp::restrict(allowed.chain(answered).chain(missing))
}
