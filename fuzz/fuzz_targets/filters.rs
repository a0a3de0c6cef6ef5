//! The cargo-fuzz target of the boundary `filters` (heaptrace/src/fuzz.rs). Run: `cargo +nightly fuzz run filters`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heaptrace_fuzz::check("filters", data));
