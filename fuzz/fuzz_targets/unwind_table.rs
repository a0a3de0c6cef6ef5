//! Any file as the source of an unwind table: `cargo +nightly fuzz run unwind_table`.
#![no_main]

#[path = "../check.rs"]
mod check;

use heaptrace::unwind::Limits;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    check::table(data, &Limits::default());
});
