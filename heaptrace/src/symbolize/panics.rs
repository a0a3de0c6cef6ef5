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

#[cfg(feature = "fuzz")]
thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// The result of `call`; `None` if it panicked. After a panic, the caller must discard the objects that `call` changed.
pub(crate) fn catch_panic<T>(call: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            #[cfg(feature = "fuzz")]
            if is_own(info) {
                OWN.set(OWN.get() + 1);
                others(info);
                return;
            }
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

/// Whether heaptrace's own code panicked. The compiler has the sources of libraries below absolute paths.
#[cfg(feature = "fuzz")]
fn is_own(info: &panic::PanicHookInfo<'_>) -> bool {
    let file = info.location().map(|it| it.file());
    file.is_some_and(|it| std::path::Path::new(it).is_relative())
}

/// How many panics of this thread were in heaptrace's own code. Fuzzers must see them, although a reader goes on after one.
#[cfg(feature = "fuzz")]
pub(crate) fn own_panics() -> u64 {
    OWN.get()
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
