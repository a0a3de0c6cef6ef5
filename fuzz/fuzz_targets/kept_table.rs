//! The cargo-fuzz target of the boundary `kept_table` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run kept_table`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("kept_table", data));
