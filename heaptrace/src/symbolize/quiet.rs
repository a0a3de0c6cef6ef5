//! Calls that may panic, contained and silent.
//!
//! Stage: symbolize. The last defence against a library that a crafted file can make panic: the run
//! goes on without the name. Knows nothing of what it calls.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The result of `call`, `None` if it panicked. Whatever it worked on must be thrown away then.
pub(super) fn contained<T>(call: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                others(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    QUIET.set(before);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a panic ends in `None`, and that another one is not silenced afterwards.
    #[test]
    fn panics_end_here() {
        assert_eq!(contained(|| 1), Some(1));
        assert_eq!(contained(|| -> i32 { panic!("must not be seen") }), None);
        assert!(!QUIET.get());
    }
}
