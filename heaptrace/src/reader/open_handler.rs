//! Emulation of `open` and `stat` in a reader, for libraries that can open files by path only.
//!
//! No stage of the flow. A reader can't open files: the kernel turns each attempt into a SIGSYS. The handler of this signal
//! answers calls for `/proc/self/fd/N`, and for paths under which a file was offered, by the descriptor that the reader
//! has. It refuses all other paths. The handler may run at any moment, so it allocates no memory and takes no lock.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, IntoRawFd as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use rustix::fs::{Stat, fstat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

/// Longest path that a file can be offered under.
const MAX_PATH: usize = 4096;

/// A path under which a file is offered.
struct Offered {
    /// Bytes of the path; 0 if no file is offered here.
    length: AtomicUsize,
    file: AtomicI32,
    path: UnsafeCell<[u8; MAX_PATH]>,
}

// SAFETY: a reader has one thread. It writes the path only while `length` is 0, and only the signal handler on that same
// thread reads the path.
unsafe impl Sync for Offered {}

/// Two files: a debug file, and the supplementary file that it names.
static OFFERED: [Offered; 2] = [const {
    Offered {
        length: AtomicUsize::new(0),
        file: AtomicI32::new(-1),
        path: UnsafeCell::new([0; MAX_PATH]),
    }
}; 2];

/// Whether the handler is installed.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Whether a path opens the file that was offered under it. In a process that is not confined, the system resolves paths.
pub fn offered_by_name() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// Offers files under paths, until the next call. Has no effect in a process that is not confined.
pub fn offer(files: &[(&Path, BorrowedFd<'_>)]) {
    if !offered_by_name() {
        return;
    }
    for (index, place) in OFFERED.iter().enumerate() {
        place.length.store(0, Ordering::SeqCst);
        let Some((path, file)) = files.get(index) else {
            continue;
        };
        let bytes = path.as_os_str().as_encoded_bytes();
        if bytes.is_empty() || bytes.len() > MAX_PATH {
            continue;
        }
        // SAFETY: the handler does not read the path while its length is 0, and only this thread writes it.
        let own = unsafe { &mut *place.path.get() };
        own[..bytes.len()].copy_from_slice(bytes);
        place.file.store(file.as_raw_fd(), Ordering::SeqCst);
        place.length.store(bytes.len(), Ordering::SeqCst);
    }
}

/// Installs the handler.
pub(super) fn install() -> io::Result<()> {
    // SAFETY: the struct consists of integers and pointers, for which zero is the default.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the struct is valid, and the handler takes the three arguments that SA_SIGINFO promises.
    if unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    INSTALLED.store(true, Ordering::Relaxed);
    Ok(())
}

/// The calls that the handler answers.
pub(super) const ANSWERED: [i64; 4] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_stat,
    libc::SYS_newfstatat,
];

extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO, the kernel passes the registers of the interrupted thread.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let argument = |register: c_int| registers[register as usize];
    let (first, second, third) = (
        argument(libc::REG_RDI),
        argument(libc::REG_RSI),
        argument(libc::REG_RDX),
    );
    let result = match argument(libc::REG_RAX) {
        libc::SYS_open => open(first),
        libc::SYS_openat => open(second),
        libc::SYS_stat => stat(None, first, second),
        libc::SYS_newfstatat => stat(Some(first), second, third),
        _ => -i64::from(libc::ENOSYS),
    };
    registers[libc::REG_RAX as usize] = result;
}

/// The answer for all other paths. A library that only checks whether an optional file exists then continues without it.
const NOT_THERE: i64 = -(libc::ENOENT as i64);

fn open(path: i64) -> i64 {
    let Some(file) = offered_file(path) else {
        return NOT_THERE;
    };
    let copy = borrowed(file).and_then(|file| fcntl_dupfd_cloexec(file, 3));
    answer(copy.map(|copy| i64::from(copy.into_raw_fd())))
}

fn stat(folder: Option<i64>, path: i64, buffer: i64) -> i64 {
    let file = match (offered_file(path), folder) {
        (Some(file), _) => file,
        // An empty path means the descriptor itself.
        (None, Some(folder)) if is_empty(path) => folder as c_int,
        _ => return NOT_THERE,
    };
    // Not by the C library's `fstat`, which may make a call that traps here again. rustix makes the call `fstat`.
    let found = borrowed(file).and_then(fstat);
    answer(found.map(|found| {
        // SAFETY: the caller passed this buffer for the kernel's `struct stat`, which `Stat` is.
        unsafe { (buffer as *mut Stat).write(found) };
        0
    }))
}

fn borrowed<'f>(file: c_int) -> Result<BorrowedFd<'f>, Errno> {
    if file < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: a call on a descriptor that is not open fails, and the result is not kept.
    Ok(unsafe { BorrowedFd::borrow_raw(file) })
}

/// The result of a call as the kernel returns it.
fn answer(result: Result<i64, Errno>) -> i64 {
    result.unwrap_or_else(|error| -i64::from(error.raw_os_error()))
}

fn text<'p>(path: i64) -> &'p [u8] {
    if path == 0 {
        return &[];
    }
    // SAFETY: the path comes from a library in this program and ends with a zero byte.
    unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes()
}

fn is_empty(path: i64) -> bool {
    text(path).is_empty()
}

/// The descriptor for a path.
fn offered_file(path: i64) -> Option<c_int> {
    let path = text(path);
    if let Some(digits) = path.strip_prefix(b"/proc/self/fd/") {
        return number(digits);
    }
    OFFERED.iter().find_map(|place| {
        let length = place.length.load(Ordering::SeqCst);
        // SAFETY: the path is not written while its length is not 0.
        let own = unsafe { &*place.path.get() };
        (length > 0 && own.get(..length) == Some(path)).then(|| place.file.load(Ordering::SeqCst))
    })
}

fn number(digits: &[u8]) -> Option<c_int> {
    if digits.is_empty() || digits.len() > 6 {
        return None;
    }
    digits.iter().try_fold(0, |sum, digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + c_int::from(digit - b'0'))
    })
}
