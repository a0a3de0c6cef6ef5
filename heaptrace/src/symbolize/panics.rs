//! Catches panics of a library, without a message.
//!
//! Stage: symbolize. The last defence against malicious files that make a library panic: the reader then continues without
//! the name. Must not know what it calls.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// The result of `call`; `None` if it panicked. After a panic, the caller must discard the objects that `call` changed.
pub(crate) fn catch_panic<T>(call: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_SILENT.get() {
                others(info);
            }
        }));
    });
    let before = IS_SILENT.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    IS_SILENT.set(before);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a panic becomes `None`, and that later panics are not silenced.
    #[test]
    fn panics_are_caught() {
        assert_eq!(catch_panic(|| 1), Some(1));
        assert_eq!(catch_panic(|| -> i32 { panic!("must not be seen") }), None);
        assert!(!IS_SILENT.get());
    }
}
