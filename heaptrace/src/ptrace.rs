//! Requests of ptrace, by which a process attaches to threads of another one.
//!
//! No stage of the flow; imports none. By the system call itself: the C libraries give requests different types.

use std::io;

use libc::{c_int, c_uint};

/// The numbers of requests.
pub(crate) mod request {
    use libc::c_uint;

    pub(crate) const CONT: c_uint = 7;
    pub(crate) const GETREGS: c_uint = 12;
    pub(crate) const SETREGS: c_uint = 13;
    pub(crate) const DETACH: c_uint = 17;
    pub(crate) const SYSCALL: c_uint = 24;
    pub(crate) const GETSIGINFO: c_uint = 0x4202;
    pub(crate) const GETREGSET: c_uint = 0x4204;
    pub(crate) const SEIZE: c_uint = 0x4206;
    pub(crate) const INTERRUPT: c_uint = 0x4207;
    pub(crate) const LISTEN: c_uint = 0x4208;
    pub(crate) const GETSIGMASK: c_uint = 0x420a;
    pub(crate) const SETSIGMASK: c_uint = 0x420b;
    pub(crate) const GET_RSEQ_CONFIGURATION: c_uint = 0x420f;
}

/// The event of stops that no signal causes, and of a stopped process.
pub(crate) const EVENT_STOP: c_int = 128;

/// Makes a request to a thread.
///
/// # Safety
///
/// Where the request takes a pointer, `address` or `data` must be one to a value of the right type that lives until after the call.
pub(crate) unsafe fn call(
    request: c_uint,
    tid: u32,
    address: usize,
    data: usize,
) -> io::Result<()> {
    // SAFETY: the caller promises that pointers are valid.
    match unsafe { libc::syscall(libc::SYS_ptrace, request, tid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
