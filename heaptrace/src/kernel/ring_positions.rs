//! How far the kernel program has written its ring, and how far it was read.
//!
//! Part of `kernel`. A reader stops at a record that is reserved and not written yet, although later records may
//! be whole. So a ring that looks empty may hold records; only its positions tell.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first two pages of a ring: they begin with the position of the reader, and with that of the writers.
#[derive(Debug)]
pub(crate) struct RingPositions {
    start: NonNull<AtomicU64>,
    page: usize,
}

// SAFETY: the mapping belongs to no thread.
unsafe impl Send for RingPositions {}

impl RingPositions {
    pub(crate) fn of(ring: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: the call takes no pointer.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: a new mapping at no particular address; the kernel checks its length.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * page,
                libc::PROT_READ,
                libc::MAP_SHARED,
                ring.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            page,
        })
    }

    /// Bytes that were read, or are skipped.
    pub(crate) fn read(&self) -> u64 {
        // SAFETY: the first word of the mapping, which lives as long as `self`.
        unsafe { self.start.as_ref() }.load(Ordering::Acquire)
    }

    /// Bytes that were reserved, whether they are written or not.
    pub(crate) fn reserved(&self) -> u64 {
        // SAFETY: the first word of the second page of the mapping, which lives as long as `self`.
        unsafe { self.start.byte_add(self.page).as_ref() }.load(Ordering::Acquire)
    }
}

impl Drop for RingPositions {
    fn drop(&mut self) {
        // SAFETY: the mapping that `of` made; no reference to it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), 2 * self.page) };
    }
}
