//! A map of the kernel program as memory of this process.
//!
//! No stage: what is in the map is known to whom it belongs. Filling one a row at a time by system calls takes
//! hundreds of times longer.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// An array map whose values take eight bytes each.
#[derive(Debug)]
pub(crate) struct MappedArray {
    start: NonNull<AtomicU64>,
    slots: usize,
}

// SAFETY: the mapping belongs to no thread.
unsafe impl Send for MappedArray {}

impl MappedArray {
    /// Maps an array of so many values.
    pub(crate) fn map(array: BorrowedFd<'_>, slots: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at no particular address; the kernel checks its length.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                slots * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                array.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            slots,
        })
    }

    /// Sets a value, which the kernel program may read at the same time. Beyond the end nothing
    /// happens.
    pub(crate) fn set(&mut self, slot: usize, value: u64) {
        if slot < self.slots {
            // SAFETY: within the mapping, which lives as long as `self`.
            unsafe { self.start.add(slot).as_ref() }.store(value, Ordering::Relaxed);
        }
    }

    /// Takes one off a value, which the kernel program may change at the same time.
    pub(crate) fn take_one(&self, slot: usize) {
        if slot < self.slots {
            // SAFETY: as in `set`.
            unsafe { self.start.add(slot).as_ref() }.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A value; 0 beyond the end.
    pub(crate) fn get(&self, slot: usize) -> u64 {
        if slot < self.slots {
            // SAFETY: as in `set`.
            unsafe { self.start.add(slot).as_ref() }.load(Ordering::Relaxed)
        } else {
            0
        }
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, of which no reference is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.slots * 8) };
    }
}
