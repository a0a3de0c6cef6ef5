//! Wire structs as keys and values of aya's maps.
//!
//! Part of `kernel`. aya's marker trait can't be implemented for another crate's types, so they are wrapped
//! here. A feature of heaptrace-common with aya as an optional dependency would put all of aya into the
//! kernel program's lock file, and with that into its digest.

use heaptrace_common::wire::{
    Block, BlockKey, Countdown, FileKey, Jvm, NameFilter, ProcessEnd, ProcessState, PythonImage,
    ShortLived, ShortLivedKey, StackKey, TableRef, ThreadState, Unmapped, V8Image,
};

/// A struct that consists of integers, without padding bytes.
///
/// # Safety
///
/// Every pattern of bits must be a valid value, and no byte may be padding.
pub unsafe trait Plain: Copy + 'static {}

/// A wire struct that can be a key or a value of a map.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Wire<T>(pub T);

// SAFETY: `Plain` requires what aya requires, and the wrapper adds nothing.
unsafe impl<T: Plain> aya::Pod for Wire<T> {}

macro_rules! plain {
    ($($wire:ty),+) => {$(
        // SAFETY: integers only, without padding bytes (asserted at the struct's definition).
        unsafe impl Plain for $wire {}
    )+};
}
plain!(
    Block,
    BlockKey,
    Countdown,
    FileKey,
    Jvm,
    NameFilter,
    ProcessEnd,
    ProcessState,
    PythonImage,
    ShortLived,
    ShortLivedKey,
    StackKey,
    TableRef,
    ThreadState,
    Unmapped,
    V8Image
);
