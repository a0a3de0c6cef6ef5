//! The cargo-fuzz target of the boundary `unwind_table` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run unwind_table`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("unwind_table", data));
