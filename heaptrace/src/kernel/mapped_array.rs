//! An array map of the kernel program, as shared memory.
//!
//! Part of `kernel`. It must not know what the values mean. To fill a map with one system call per value
//! would take hundreds of times longer.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use aya::maps::MapData;
use aya_obj::generated::{BPF_F_MMAPABLE, bpf_map_type::BPF_MAP_TYPE_ARRAY};

use crate::proc::maps;

/// An array map whose values have eight bytes each.
#[derive(Debug)]
pub(crate) struct MappedArray {
    start: NonNull<AtomicU64>,
    slots: usize,
}

// SAFETY: the mapping belongs to no thread.
unsafe impl Send for MappedArray {}

impl MappedArray {
    /// Makes an array of its own, which the kernel program finds through a map of maps.
    pub(crate) fn create(name: &str, slots: u32) -> Result<(MapData, Self)> {
        let array =
            aya_obj::Map::new_from_params(BPF_MAP_TYPE_ARRAY as u32, 4, 8, slots, BPF_F_MMAPABLE);
        let map = MapData::create(array, name, None)?;
        let mapped = Self::map(map.fd().as_fd(), slots as usize)
            .with_context(|| format!("can't map {name}"))?;
        Ok((map, mapped))
    }

    /// Maps an array with this many values.
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

    /// Sets a value, which the kernel program may read at the same time. A slot beyond the end is ignored.
    pub(crate) fn set(&mut self, slot: usize, value: u64) {
        if slot < self.slots {
            // SAFETY: within the mapping, which lives as long as `self`.
            unsafe { self.start.add(slot).as_ref() }.store(value, Ordering::Relaxed);
        }
    }

    /// Adds to a value, which the kernel program may change at the same time. It wraps around.
    pub(crate) fn add(&self, slot: usize, number: u64) {
        if slot < self.slots {
            // SAFETY: as in `set`.
            unsafe { self.start.add(slot).as_ref() }.fetch_add(number, Ordering::SeqCst);
        }
    }

    /// The value of a slot; 0 beyond the end.
    pub(crate) fn get(&self, slot: usize) -> u64 {
        if slot < self.slots {
            // SAFETY: as in `set`.
            unsafe { self.start.add(slot).as_ref() }.load(Ordering::Relaxed)
        } else {
            0
        }
    }
}

/// Bytes of all kernel maps that this process has mapped, the ring included: they count as its resident memory, the ring
/// even twice. The kernel maps whole maps at once.
pub(crate) fn resident() -> u64 {
    let text = maps::read(std::process::id()).unwrap_or_default();
    maps::parse(&text)
        .filter(|mapping| mapping.path == "anon_inode:bpf-map")
        .map(|mapping| mapping.end - mapping.start)
        .sum()
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made; no reference to it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.slots * 8) };
    }
}
