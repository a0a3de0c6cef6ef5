//! What a thread has allocated: every input has a bound, and none gets beyond what a machine can bear.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Most bytes that a thread gets: what asks for more is ended, and the input is found with its memory.
const MOST: isize = 2 << 30;

struct Counting;

thread_local! {
    static USED: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// Counts; gives whether that may be.
fn count(change: isize) -> bool {
    // Where the thread is ending, nobody asks any more.
    USED.try_with(|used| {
        let (now, most) = used.get();
        used.set((now + change, most.max(now + change)));
        now + change <= MOST
    })
    .unwrap_or(true)
}

// SAFETY: passes everything on to the system's allocator, or fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !count(layout.size() as isize) {
            count(-(layout.size() as isize));
            return std::ptr::null_mut();
        }
        // SAFETY: what the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: what the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Begins to count.
pub(crate) fn begin() {
    USED.set((0, 0));
}

/// The most that this thread had since then, beyond what it had then.
pub(crate) fn most() -> usize {
    USED.get().1 as usize
}
