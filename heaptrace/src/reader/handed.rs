//! Files that a reader was handed, opened by path: for libraries that know no other way.
//!
//! No stage of the flow. A reader can open nothing; the kernel turns each attempt into a SIGSYS. Its handler answers those
//! for `/proc/self/fd/N`, and for paths under which a file was offered, with a copy of the descriptor, and refuses
//! all others. A handler may run at any moment, so it takes no memory and no lock.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// Longest path that is answered.
const MAX_PATH: usize = 4096;

/// A path under which a file is offered.
struct Offered {
    /// Bytes of the path; 0 where none is offered.
    length: AtomicUsize,
    file: AtomicI32,
    path: UnsafeCell<[u8; MAX_PATH]>,
}

// SAFETY: the path is written only while `length` is 0, by the one thread that a reader has, and read only by the signal
// handler on that same thread.
unsafe impl Sync for Offered {}

/// Two: a debug file, and the one that it names in turn.
static OFFERED: [Offered; 2] = [const {
    Offered {
        length: AtomicUsize::new(0),
        file: AtomicI32::new(-1),
        path: UnsafeCell::new([0; MAX_PATH]),
    }
}; 2];

/// Whether the handler is in place.
static CAUGHT: AtomicBool = AtomicBool::new(false);

/// Whether files are opened by the names under which they are offered: where this is no confined process, a path leads where
/// the system says.
pub fn offered_by_name() -> bool {
    CAUGHT.load(Ordering::Relaxed)
}

/// Offers files under paths, until the next call. Without effect where this process is not confined.
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
        // SAFETY: nobody reads it while its length is 0, and only this thread writes.
        let own = unsafe { &mut *place.path.get() };
        own[..bytes.len()].copy_from_slice(bytes);
        place.file.store(file.as_raw_fd(), Ordering::SeqCst);
        place.length.store(bytes.len(), Ordering::SeqCst);
    }
}

/// Puts the handler in place.
pub(super) fn catch() -> io::Result<()> {
    // SAFETY: a struct of integers and pointers, for which zero is the default.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the struct is valid, and the handler is one that takes three arguments.
    if unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    CAUGHT.store(true, Ordering::Relaxed);
    Ok(())
}

/// Calls that are answered here.
pub(super) const ANSWERED: [i64; 4] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_stat,
    libc::SYS_newfstatat,
];

extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a handler of this kind the registers of the thread that it interrupts.
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

/// What is answered for all other paths: who looks whether a file is there goes on without it.
const NOT_THERE: i64 = -(libc::ENOENT as i64);

fn open(path: i64) -> i64 {
    let Some(file) = found(path) else {
        return NOT_THERE;
    };
    // SAFETY: a plain system call.
    answer(unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 3) })
}

fn stat(folder: Option<i64>, path: i64, buffer: i64) -> i64 {
    let file = match (found(path), folder) {
        (Some(file), _) => file,
        // An empty path means the descriptor itself.
        (None, Some(folder)) if is_empty(path) => folder as c_int,
        _ => return NOT_THERE,
    };
    // Not the C library's, which may come back here. SAFETY: the caller's buffer, as it would have handed it to the kernel.
    let result = unsafe { libc::syscall(libc::SYS_fstat, file, buffer) };
    answer(result as c_int)
}

/// What the kernel would have answered.
fn answer(result: c_int) -> i64 {
    if result >= 0 {
        return i64::from(result);
    }
    // SAFETY: the C library's own place for it.
    -i64::from(unsafe { *libc::__errno_location() })
}

fn text<'p>(path: i64) -> &'p [u8] {
    if path == 0 {
        return &[];
    }
    // SAFETY: a path that this program's own libraries made, which ends with a zero.
    unsafe { CStr::from_ptr(path as *const c_char) }.to_bytes()
}

fn is_empty(path: i64) -> bool {
    text(path).is_empty()
}

/// The descriptor that a path stands for.
fn found(path: i64) -> Option<c_int> {
    let path = text(path);
    if let Some(digits) = path.strip_prefix(b"/proc/self/fd/") {
        return number(digits);
    }
    OFFERED.iter().find_map(|place| {
        let length = place.length.load(Ordering::SeqCst);
        // SAFETY: it is not written while its length is not 0.
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
