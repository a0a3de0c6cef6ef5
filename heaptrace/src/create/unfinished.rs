//! Removes an unfinished file if a signal ends the process.
//!
//! Part of `create`. Its handler runs in the middle of anything, and so only makes system calls. Must not know what is written.

use std::ffi::{CStr, CString, c_int};
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The signals by which users, terminals and managers of services end a process.
const SIGNALS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// A file that has no final name yet.
struct Unfinished {
    /// The process that removes it. Processes that it forks have the same handler.
    process: u32,
    folder: RawFd,
    name: CString,
}

/// The file of this process. What it points to is never changed and never freed, because a handler may be reading it.
static UNFINISHED: AtomicPtr<Unfinished> = AtomicPtr::new(ptr::null_mut());

/// While this lives, a signal that ends the process removes the file.
#[derive(Debug)]
pub(super) struct Watch(());

impl Watch {
    /// Watches for signals. Only one file can be watched at a time: a command has one output.
    pub(super) fn begin(folder: BorrowedFd<'_>, name: &CStr) -> Option<Self> {
        let file = Box::into_raw(Box::new(Unfinished {
            process: std::process::id(),
            folder: folder.as_raw_fd(),
            name: name.to_owned(),
        }));
        let (none, order) = (ptr::null_mut(), Ordering::AcqRel);
        let replaced = UNFINISHED.compare_exchange(none, file, order, Ordering::Relaxed);
        if replaced.is_err() {
            // SAFETY: `into_raw` has just returned it, and nothing else has it.
            drop(unsafe { Box::from_raw(file) });
            return None;
        }
        SIGNALS.into_iter().for_each(handle);
        Some(Self(()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        UNFINISHED.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Handles a signal, unless the process ignores it or handles it already.
fn handle(signal: c_int) {
    // SAFETY: the structures are valid, and the handler makes only calls that are safe in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, ptr::null(), &raw mut action) != 0
            || action.sa_sigaction != libc::SIG_DFL
        {
            return;
        }
        let end: extern "C" fn(c_int) = end;
        action.sa_sigaction = end as libc::sighandler_t;
        // The handler runs once; then the signal has its usual effect again.
        action.sa_flags = libc::SA_RESETHAND;
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// Removes the file, and lets the signal end the process.
extern "C" fn end(signal: c_int) {
    // SAFETY: the pointer is null, or to a value that is never freed. The calls are safe in a handler.
    unsafe {
        if let Some(file) = UNFINISHED.load(Ordering::Acquire).as_ref()
            && libc::getpid() as u32 == file.process
        {
            libc::unlinkat(file.folder, file.name.as_ptr(), 0);
        }
        // It is delivered when this handler returns.
        libc::raise(signal);
    }
}
