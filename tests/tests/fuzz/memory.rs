//! Counts the memory of each thread, by a global allocator. An input that asks for too much of it fails.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The most bytes that a thread gets. If it asks for more, the process ends, and the input is found in its file.
const MOST: isize = 2 << 30;

struct Counting;

thread_local! {
    static USED: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// Counts a change, and returns whether it is allowed.
fn count(change: isize) -> bool {
    // While the thread ends, its counters are gone and no longer needed.
    USED.try_with(|used| {
        let (now, most) = used.get();
        used.set((now + change, most.max(now + change)));
        now + change <= MOST
    })
    .unwrap_or(true)
}

// SAFETY: each call is passed on to the system's allocator, or fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !count(layout.size() as isize) {
            count(-(layout.size() as isize));
            return std::ptr::null_mut();
        }
        // SAFETY: the caller promises it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller promises it.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sets the counters to 0.
pub(crate) fn begin() {
    USED.set((0, 0));
}

/// The most bytes that this thread had at a time since `begin`, beyond those that it had then.
pub(crate) fn most() -> usize {
    USED.get().1 as usize
}
