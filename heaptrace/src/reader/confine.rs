//! What a reader gives up before it reads: everything but memory, processor time, and what it is handed.
//!
//! No stage of the flow.

use std::io;

use super::handed;
use crate::sandbox::seccomp::{self, Verdict};
use crate::sandbox::{self, Kept, landlock, rights};

/// Most descriptors: what a question brings, and what was handed before and is kept.
const DESCRIPTORS: u64 = 512;

/// More processor time than any run needs of one reader, seconds: should it be left alone with work that never ends.
const MOST_SECONDS: u64 = 3600;

/// Confines this process, which must have one thread only.
pub(super) fn confine(memory: u64) -> io::Result<()> {
    // What whoever started the tracer left open for it. SAFETY: a plain call; nothing here has a descriptor yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    // While it has the right to.
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
            current: Some(MOST_SECONDS),
            maximum: Some(MOST_SECONDS),
        },
    )?;
    // A kernel without it still refuses every call that opens a file, below.
    landlock::restrict(&[])?;
    handed::catch()?;
    let own = [
        libc::SYS_recvmsg,
        libc::SYS_recvfrom,
        libc::SYS_sendmsg,
        libc::SYS_sendto,
        libc::SYS_setitimer,
    ];
    let allowed = seccomp::BASIC.into_iter().chain(own);
    let allowed = allowed.map(|call| (call, Verdict::Allow));
    let answered = handed::ANSWERED.map(|call| (call, Verdict::Trap));
    // A standard library that is told that this one is not there takes the older ones.
    let missing = (libc::SYS_statx, Verdict::Fail(libc::ENOSYS));
    seccomp::restrict(allowed.chain(answered).chain([missing]))
}
